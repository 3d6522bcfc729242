#pragma once

#include <functional>

#include "runtime/text/jinja/limits.h"
#include "runtime/text/jinja/value.h"

namespace ferry::jinja {

class Frame;

/// Makes the values of one rendering, and counts what they take and what is done. All of them must be gone before it is. For
/// one thread.
class Heap {
 public:
  /// `check_in` may be empty; it is called every few thousand steps.
  Heap(const Limits& limits, const std::function<void()>& check_in) : limits_(limits), check_in_(check_in) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;
  ~Heap() { break_cycles(); }

  const Limits& limits() const { return limits_; }

  /// Counts steps; fails when there were too many.
  void work(int64_t num_steps = 1) {
    num_steps_ += num_steps;
    if (num_steps_ >= next_check_) look_up();
  }
  /// Counts text that is looked at.
  void read(std::size_t num_bytes) { work(1 + static_cast<int64_t>(num_bytes >> 5)); }

  /// Fails unless so much more may be held.
  void require(std::size_t num_bytes) const;
  void hold(int64_t num_bytes);
  void release(int64_t num_bytes) { num_held_bytes_ -= num_bytes; }

  Value text(std::string bytes, bool is_safe = false);
  /// A value that fails with `message` where it is used.
  Value undefined(std::string message);
  Value list(std::vector<Value> items) { return sequence(Sequence::Form::kList, std::move(items)); }
  Value tuple(std::vector<Value> items) { return sequence(Sequence::Form::kTuple, std::move(items)); }
  Value iterator(std::vector<Value> items) { return sequence(Sequence::Form::kIterator, std::move(items), "generator object"); }
  Value sequence(Sequence::Form form, std::vector<Value> items, std::string label = "");
  Value group(Value grouper, Value items);
  /// Of equal keys the first one's place and the last one's value count.
  Value dict(std::vector<Dict::Entry> entries);
  Value name_space(std::vector<std::pair<std::string, Value>> attributes);
  template <class T, class... Args>
  std::shared_ptr<T> object(Args&&... args) {
    auto made = std::make_shared<T>(std::forward<Args>(args)...);
    own(*made, sizeof(T));
    return made;
  }
  std::shared_ptr<Frame> frame(std::shared_ptr<Frame> parent);
  /// A frame that a macro refers to: it may hold that macro.
  void keep(const std::shared_ptr<Frame>& frame);

 private:
  void own(Held& held, std::size_t num_bytes);
  void look_up();
  void break_cycles();
  /// Of something that holds `items`.
  int depth_around(std::span<const Value> items) const;

  const Limits limits_;
  const std::function<void()>& check_in_;
  int64_t num_steps_ = 0;
  int64_t next_check_ = 4096;
  int64_t num_held_bytes_ = 0;
  // What can refer to itself; emptied at the end.
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  std::vector<std::shared_ptr<Frame>> kept_frames_;
};

/// Looks for a name among names, and counts those that it is compared with.
class LookUp {
 public:
  LookUp(Heap* heap, std::string_view name) : heap_(heap), name_(name) {}
  LookUp(const LookUp&) = delete;
  LookUp& operator=(const LookUp&) = delete;

  bool is_it(std::string_view other) {
    num_units_ += 1 + (other.size() == name_.size() ? name_.size() / kUnitBytes : 0);
    if (num_units_ >= kUnitsPerStep) count();
    return other == name_;
  }

 private:
  static constexpr std::size_t kUnitBytes = 16, kUnitsPerStep = 16;
  void count() {
    heap_->work(static_cast<int64_t>(num_units_ / kUnitsPerStep));
    num_units_ = 0;
  }

  Heap* const heap_;
  const std::string_view name_;
  std::size_t num_units_ = 0;  // of work that is not counted yet
};

/// The variables of one block. Blocks see those of the blocks around them in the text; macros those of the place where they
/// were written.
class Frame final : public Held {
 public:
  explicit Frame(std::shared_ptr<Frame> parent) : parent_(std::move(parent)) {}

  /// Null if neither this frame nor one around it has `name`.
  const Value* find(std::string_view name) const;
  /// `name` must outlive the frame: it is part of the template, or of what is given to it.
  void set(std::string_view name, Value value);
  void clear() { variables_.clear(); }

  bool is_kept = false;

 private:
  std::shared_ptr<Frame> parent_;
  std::vector<std::pair<std::string_view, Value>> variables_;
};

}  // namespace ferry::jinja

#pragma once

#include <memory>
#include <vector>

#include "runtime/text/jinja/heap.h"
#include "runtime/text/jinja/syntax.h"

namespace ferry::jinja {

/// The variable `loop`.
class Loop final : public Object {
 public:
  /// `depth_now` counts from 1, for a loop that calls itself.
  Loop(const Statement& statement, std::shared_ptr<Frame> scope, std::vector<Value> items, int64_t depth_now, Heap& values);
  ~Loop() override;
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  bool is_empty() const { return items_.empty(); }
  bool is_done() const { return index_ >= items_.size(); }
  const Value& item() const { return items_[index_]; }
  void advance() { ++index_; }

  std::string printed() const override;
  const char* type_name() const override { return "LoopContext"; }
  bool is_callable() const override { return statement_.is_recursive; }
  /// Of a recursive loop: goes over other items.
  Value call(Interpreter& interpreter, Arguments& arguments) override;
  std::optional<Value> attribute(std::string_view name, Interpreter& interpreter) override;

  /// loop.cycle(…) and loop.changed(…).
  Value cycle(const Arguments& arguments) const;
  bool changed(const Arguments& arguments);

 private:
  const Statement& statement_;
  std::shared_ptr<Frame> scope_;
  std::vector<Value> items_;
  std::size_t index_ = 0;
  const int64_t depth_;
  Heap& values_;
  int64_t num_item_bytes_ = 0;
  std::shared_ptr<Frame> last_seen_;  // the values of the last changed(); kept by the heap, for they may hold this loop
};

}  // namespace ferry::jinja

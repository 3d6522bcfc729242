#pragma once

#include <memory>
#include <optional>
#include <span>

#include "moe/assignment.h"
#include "moe/reply_writer.h"
#include "runtime/expert_canary.h"
#include "runtime/expert_preparer.h"
#include "runtime/expert_shelf.h"

namespace ferry {

/// The experts that a rank holds for one coordinator, and how it comes to hold others: an assignment is made ready beside the
/// work with those it holds, and takes their place when the first rows of its epoch come. One thread at a time.
class ExpertHolder {
 public:
  /// Holds nothing yet. `shelf` outlives this.
  explicit ExpertHolder(ExpertShelf& shelf);
  ~ExpertHolder();
  ExpertHolder(const ExpertHolder&) = delete;
  ExpertHolder& operator=(const ExpertHolder&) = delete;

  ExpertShelf& shelf() { return shelf_; }
  /// Reads the experts of a first assignment, on all threads. Throws Error{kResourceExhausted} where memory does not do.
  void hold(const Assignment& assignment);

  /// What requests must agree with.
  const WorkerShape& shape() const { return replies_->shape(); }
  /// The coordinator works by the placement of `epoch`: if that is the next one, it is what is held from now on.
  void go_over(uint32_t epoch);
  /// The largest messages of any assignment.
  WorkerShape largest_shape() const;
  /// What it holds of a layer, in the order that requests count.
  std::span<const LogicalExpertId> experts(int64_t layer) const { return held_.experts[static_cast<std::size_t>(layer)]; }
  const ExpertBank& bank() const { return *held_.bank; }
  ReplyWriter::Options reply_options() const;
  /// The reply to a request of shape(), written into `reply`. Throws as ReplyWriter does.
  std::span<const std::byte> answer(const RequestView& request, std::span<std::byte> reply) {
    return replies_->write(request, reply);
  }

  /// For another coordinator, whose epochs begin anew: what is held stays, and what was to come does not.
  void begin_anew();
  /// Begins to make an assignment ready, in place of any that is not held yet.
  void prepare(Assignment assignment);
  /// Whether one is being made ready: then advance() is to be called again and again.
  bool is_preparing() const { return (next_ && !next_->is_told) || preparer_->is_busy(); }
  /// Does a small piece of what is left to do. What has become of the assignment, once it is ready or cannot be.
  std::optional<Preparation> advance();

 private:
  struct Holding {
    RankExperts experts;
    std::shared_ptr<const ExpertBank> bank;
  };
  /// One that is read from the checkpoint.
  struct Next {
    Holding holding;
    RankExperts canaries;
    Preparation preparation;
    std::size_t layer = 0, at = 0;  // in canaries, of the next one
    bool is_told = false;
  };

  void hold(uint32_t epoch, Holding holding);
  bool sing_next(Next& next);

  ExpertShelf& shelf_;
  Holding held_;
  std::optional<ReplyWriter> replies_;
  std::optional<Next> next_;
  std::optional<ExpertCanary> canary_;  // of a device, which one thread at a time uses
  std::optional<ExpertPreparer> preparer_;
};

}  // namespace ferry

#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

namespace ferry {

/// How fast one worker answers, learnt from its replies: what is expected of the next one, and how it compares with others.
class WorkerPace {
 public:
  /// Replies before anything is expected: the first ones read weights that nobody has touched, and make threads.
  static constexpr int64_t kMinReplies = 16;

  /// A reply to rows of `cost` (ExpertCost) came after `elapsed`, of which the worker computed for `computed`.
  void learn(double cost, std::chrono::nanoseconds elapsed, std::chrono::nanoseconds computed);

  /// How long a reply to rows of `cost` may take and still be as usual: the slowest of recent times, of which a reply forgets a
  /// fiftieth. Nothing while too few have come.
  std::chrono::nanoseconds usual(double cost) const;
  bool knows() const { return num_replies_ >= kMinReplies; }
  /// Seconds of computing that a unit of cost takes, over about the last hundred replies; 0 while nothing is known. What a
  /// reply costs whatever it computes weighs less in large replies, so sums are compared and not replies. One that was held up
  /// counts as if it had taken four times as long as usual at most.
  double seconds_per_cost() const { return knows() ? recent_s_ / recent_cost_ : 0; }

 private:
  int64_t num_replies_ = 0;
  double slowest_s_ = 0;                   // a unit of cost, from request to reply
  double recent_s_ = 0, recent_cost_ = 0;  // of computing alone, later replies counting more
};

/// [paces.size()] speeds for an ExpertChooser: relative to the median of those that are known, which is what the others get;
/// in steps of a tenth, so that noise changes nothing, and within a sixteenth and four times.
std::vector<double> relative_speeds(std::span<const double> seconds_per_cost);

}  // namespace ferry

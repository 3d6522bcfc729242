#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <new>
#include <optional>

namespace ferry {

/// Thrown out of an allocation by a WorkBudget that is spent.
class BudgetSpent : public std::bad_alloc {
 public:
  const char* what() const noexcept override { return "takes too much time or memory"; }
};

/// Bounds what a library without bounds of its own does with foreign input: while it lives, operator new throws BudgetSpent on
/// this thread when it has computed for longer than `time`, or holds more than `bytes` that it did not hold before. What
/// allocates nothing is not seen.
///
///     WorkBudget budget({.time = std::chrono::seconds(10), .bytes = 512 << 20});
///     compiler.compile(grammar);
///
/// Begins and ends on one thread, which has one at a time. Calls of operator new and delete of a program that links this come
/// here first (CMakeLists.txt has the linker's options); without a budget that costs them a comparison.
class WorkBudget {
 public:
  struct Limits {
    std::chrono::nanoseconds time;  // of the processor
    int64_t bytes;
    // Returns true if the budget is spent for another reason, such as a deadline. It is asked on this thread, about once for
    // each millisecond of work. It must not throw. What it allocates does not count. May be empty.
    std::function<bool()> is_stopped = {};
  };

  explicit WorkBudget(Limits limits);
  ~WorkBudget();
  WorkBudget(const WorkBudget&) = delete;
  WorkBudget& operator=(const WorkBudget&) = delete;

  /// How long the thread has computed since its 256th allocation; until then 0, so that little work costs no look at a clock.
  std::chrono::nanoseconds time_used() const;

  /// Of operator new, before it takes `bytes`. Throws BudgetSpent.
  void check(int64_t bytes);
  /// Of operator new and delete: `bytes` are held, or no longer if negative.
  void hold(int64_t bytes) { bytes_held_ += bytes; }

 private:
  bool is_stopped(std::chrono::nanoseconds used);

  const Limits limits_;
  std::optional<std::chrono::nanoseconds> begin_;  // the thread's time at its first check
  std::chrono::nanoseconds next_question_{0};      // time used when is_stopped is asked again
  int64_t bytes_held_ = 0;
  int64_t num_allocations_ = 0;
};

}  // namespace ferry

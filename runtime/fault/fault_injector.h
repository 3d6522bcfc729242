#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/fault/fault_plan.h"

namespace ferry {

/// Lets happen to one rank what a plan says. Costs nothing where the plan has nothing for it.
class FaultInjector {
 public:
  /// `rank` is this one; times count from here on.
  FaultInjector(const std::vector<PlannedFault>& plan, Rank rank);
  ~FaultInjector();
  FaultInjector(const FaultInjector&) = delete;
  FaultInjector& operator=(const FaultInjector&) = delete;

  /// Before a step is computed, or rows of one.
  void begin_step(int64_t step);
  /// This rank has worked on rows for `time`: a slow one takes longer. Returns by how much.
  std::chrono::nanoseconds end_work(std::chrono::nanoseconds time);
  /// Returns whether this rank's replies are to hold a value that is no number.
  bool spoils_replies();
  /// Ranks whose link with the coordinator, which this one is, is to break now; each once.
  std::vector<Rank> take_cuts();

 private:
  void run();
  void happen(const PlannedFault& fault);

  std::vector<PlannedFault> by_step_, by_time_;  // that are still to come; the second ones by time
  std::chrono::steady_clock::time_point start_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  bool is_over_ = false;
  double factor_ = 1;
  std::chrono::nanoseconds delay_{0};
  bool spoils_replies_ = false;
  std::vector<Rank> cuts_;
  std::thread thread_;  // of faults by time
};

}  // namespace ferry

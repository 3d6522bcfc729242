#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <semaphore>
#include <thread>
#include <vector>

#include "comm/faulty/seeded_random.h"
#include "comm/group.h"
#include "runtime/base/types.h"

// Ranks as threads of which exactly one runs at a time, and a clock that stands still while it does. A rank gives its turn away
// only by waiting; when all wait, the clock jumps to the next event or deadline. So a run depends on its seed alone, and an
// hour of silence takes no time.

namespace ferry {

/// The threads that play ranks, kept from run to run.
class RankThreads {
 public:
  explicit RankThreads(int count);
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  int size() const { return static_cast<int>(threads_.size()); }

 private:
  friend class VirtualTime;

  struct RankThread {
    std::binary_semaphore turn{0};  // released when it is this rank's turn
    std::function<void()> task;     // empty: the thread ends
    std::thread thread;
  };
  static void run_tasks(RankThread& self);

  std::vector<std::unique_ptr<RankThread>> threads_;
  std::binary_semaphore all_done_{0};
};

/// One run's clock and turns. Everything is called from the thread whose turn it is, or before run().
class VirtualTime {
 public:
  using Duration = std::chrono::nanoseconds;

  /// A run that waits for ever, or is not over after `limit`, is a failed check.
  VirtualTime(RankThreads& threads, int num_ranks, uint64_t seed, Duration limit);

  Deadline now() const { return now_; }
  /// Since the run began.
  Duration elapsed() const { return now_ - start_; }

  /// Calls `event` at `time`, or at once if that has passed; events of the same time in the order of these calls.
  void at(Deadline time, std::function<void()> event);
  /// The calling rank waits until `is_ready` or `deadline`; false at the deadline.
  bool wait(Rank self, Deadline deadline, const std::function<bool()>& is_ready);
  /// `rank` gets no turn before `until`, even if a deadline of its own passes.
  void stop_rank(Rank rank, Deadline until);
  Deadline stopped_until(Rank rank) const { return ranks_[static_cast<std::size_t>(rank.value)].stopped_until; }
  bool is_stopped(Rank rank) const { return stopped_until(rank) > now_; }

  /// Calls `body` for every rank, and returns when all are done. Once.
  void run(const std::function<void(Rank)>& body);

 private:
  struct Waiter {
    bool is_done = false;
    Deadline deadline = Deadline::max();
    Deadline stopped_until = Deadline::min();
    const std::function<bool()>* is_ready = nullptr;  // null: may go on
  };
  struct Event {
    Deadline time;
    int64_t number = 0;
    std::function<void()> call;
  };
  struct IsLater {
    bool operator()(const Event& a, const Event& b) const { return a.time != b.time ? a.time > b.time : a.number > b.number; }
  };

  /// Whose turn it is next; runs the events that come before it.
  std::size_t find_next();
  void collect_candidates();
  void run_next_event();
  void finish(std::size_t rank);

  RankThreads& threads_;
  SeededRandom random_;
  const Deadline start_;
  const Duration limit_;
  Deadline now_;
  int64_t num_events_ = 0;
  std::priority_queue<Event, std::vector<Event>, IsLater> events_;
  std::vector<Waiter> ranks_;
  std::vector<std::size_t> candidates_;  // that could go on now
  Deadline next_wake_;                   // the earliest deadline or end of a stop among the others
};

}  // namespace ferry

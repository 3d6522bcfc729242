#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ferry {

/// One limit that a task counts against while it runs. All tasks that name the same share have it together.
struct TaskShare {
  std::string name;         // such as the client's key, or a host that is asked
  std::size_t max_running;  // tasks of this share that may run at once, at least 1
};

/// Tasks that wait for a thread. The client with the fewest running tasks is next, so one with many tasks does not hold up one
/// with few.
///
/// A task names its shares, the most important one first. It may start while each of them has fewer running tasks than its
/// limit. Among the tasks that may start, the one whose first share has the fewest running tasks goes first. If two first
/// shares have equally many, the one whose last start is longer ago goes first. For tasks of one first share the second ones
/// decide in the same way, and then their age.
///
/// A task is refused if one of its shares has as many waiting tasks as there is room left. So one share alone can fill half of
/// the room, two can fill two thirds, and there is always room for another.
///
///     FairQueue queue(100);
///     if (!queue.push({{"key 3", 2}}, task)) refuse();
///     while (auto started = queue.start_next()) {
///       started->task();
///       queue.finish(*started);
///     }
///
/// It has no threads and no lock of its own: one thread at a time may call.
class FairQueue {
 private:
  /// Counts the tasks of a share while it has any.
  struct Count {
    std::size_t num_waiting = 0;
    std::size_t num_running = 0;
    uint64_t last_start = 0;  // the number of the last start; 0: none yet
  };
  using Counts = std::map<std::string, Count>;  // by the share's name
  struct Claim {
    Counts::iterator share;
    std::size_t max_running;
  };

 public:
  using Task = std::function<void()>;

  struct Started {
    Task task;
    std::vector<Claim> claims;  // for finish()
  };

  /// One share alone may have `max_waiting` waiting tasks, all shares together twice as many.
  explicit FairQueue(std::size_t max_waiting) : room_(2 * max_waiting) {}
  FairQueue(const FairQueue&) = delete;
  FairQueue& operator=(const FairQueue&) = delete;

  /// Takes a task that names at least one share, and each of them once. Returns false if it is refused.
  [[nodiscard]] bool push(const std::vector<TaskShare>& shares, Task task);
  /// Takes out the task that is next. It counts as running until finish(). Returns nothing if no task may start now.
  std::optional<Started> start_next();
  void finish(const Started& started);

  std::size_t num_waiting() const { return waiting_.size(); }

 private:
  static bool may_start(const Started& task);
  static bool goes_before(const Started& one, const Started& other);
  void forget_if_idle(Counts::iterator share);

  const std::size_t room_;
  Counts counts_;
  std::list<Started> waiting_;  // the oldest comes first
  uint64_t num_starts_ = 0;
};

}  // namespace ferry

#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/server/fair_queue.h"

namespace ferry {

/// A few threads for work that would hold up a server's own ones, such as tokenizing a long prompt, with a bounded FairQueue
/// before them. Any thread may call any method.
class TaskPool {
 public:
  /// `max_waiting` tasks of one share may wait, and twice as many of all shares. Throws std::system_error if the system gives
  /// no thread.
  TaskPool(std::size_t num_threads, std::size_t max_waiting);
  /// Drains.
  ~TaskPool();
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  /// Has `task` run soon, in the order that FairQueue describes. Returns false if too many wait already, and after drain().
  /// Does not block. An exception of the task ends the task alone.
  [[nodiscard]] bool try_run(const std::vector<TaskShare>& shares, std::function<void()> task);
  /// The same for a pool whose tasks are all on behalf of one: they share all threads.
  [[nodiscard]] bool try_run(std::function<void()> task);
  /// Takes no more tasks, and returns when all that it took have run. Not for tasks of this pool.
  void drain();

 private:
  static void run(const std::function<void()>& task);
  void work();

  const std::size_t num_threads_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  FairQueue queue_;
  bool is_draining_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace ferry

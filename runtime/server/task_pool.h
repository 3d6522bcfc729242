#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace ferry {

/// A few threads for work that would hold up a server's own ones, such as tokenizing a long prompt, with a bounded queue before
/// them. Any thread may call any method.
class TaskPool {
 public:
  /// Throws std::system_error where the system gives no thread.
  TaskPool(std::size_t num_threads, std::size_t max_waiting);
  /// Runs what is still queued.
  ~TaskPool();
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  /// Has `task` run soon; false if as many as may wait do already. Does not block. What the task throws ends the task alone.
  [[nodiscard]] bool try_run(std::function<void()> task);

 private:
  static void run(const std::function<void()>& task);
  void work();
  void leave();

  const std::size_t max_waiting_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool is_leaving_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace ferry

#include "runtime/server/task_pool.h"

#include <exception>
#include <optional>
#include <utility>

namespace ferry {

TaskPool::TaskPool(std::size_t num_threads, std::size_t max_waiting) : num_threads_(num_threads), queue_(max_waiting) {
  try {
    for (std::size_t i = 0; i < num_threads; ++i) threads_.emplace_back([this] { work(); });
  } catch (...) {
    drain();
    throw;
  }
}

TaskPool::~TaskPool() { drain(); }

void TaskPool::drain() {
  {
    const std::scoped_lock lock(mutex_);
    is_draining_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

bool TaskPool::try_run(const std::vector<TaskShare>& shares, std::function<void()> task) {
  {
    const std::scoped_lock lock(mutex_);
    if (is_draining_ || !queue_.push(shares, std::move(task))) return false;
  }
  changed_.notify_one();
  return true;
}

bool TaskPool::try_run(std::function<void()> task) {
  return try_run({{.name = "", .max_running = num_threads_}}, std::move(task));
}

/// Frees what the task holds, also if it throws. A call that is dropped in this way answers that it was.
void TaskPool::run(const std::function<void()>& task) {
  try {
    task();
  } catch (const std::exception&) {  // std::bad_alloc, where not even an error's answer has memory
  }
}

void TaskPool::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    std::optional<FairQueue::Started> next;
    changed_.wait(lock, [&] {
      next = queue_.start_next();
      return next || (is_draining_ && queue_.num_waiting() == 0);
    });
    if (!next) return;
    lock.unlock();
    run(next->task);
    next->task = nullptr;  // what it holds is released without the lock
    lock.lock();
    queue_.finish(*next);
    changed_.notify_all();  // tasks that waited for its shares may start, and the pool may be empty now
  }
}

}  // namespace ferry

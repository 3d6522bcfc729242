#include "runtime/server/task_pool.h"

#include <exception>
#include <utility>

namespace ferry {

TaskPool::TaskPool(std::size_t num_threads, std::size_t max_waiting) : max_waiting_(max_waiting) {
  try {
    for (std::size_t i = 0; i < num_threads; ++i) threads_.emplace_back([this] { work(); });
  } catch (...) {
    leave();
    throw;
  }
}

TaskPool::~TaskPool() { leave(); }

void TaskPool::leave() {
  {
    const std::scoped_lock lock(mutex_);
    is_leaving_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool TaskPool::try_run(std::function<void()> task) {
  {
    const std::scoped_lock lock(mutex_);
    if (waiting_.size() >= max_waiting_) return false;
    waiting_.push_back(std::move(task));
  }
  changed_.notify_one();
  return true;
}

/// What a task holds goes with it, also where it throws: a call that is dropped so answers that it was.
void TaskPool::run(const std::function<void()>& task) {
  try {
    task();
  } catch (const std::exception&) {  // std::bad_alloc, where not even an error's answer has memory
  }
}

void TaskPool::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return is_leaving_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    {
      const std::function<void()> task = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      run(task);
    }
    lock.lock();
  }
}

}  // namespace ferry

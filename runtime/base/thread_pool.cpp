#include "runtime/base/thread_pool.h"

#include <exception>
#include <limits>
#include <mutex>
#include <string>
#include <system_error>

#include "runtime/base/check.h"
#include "runtime/base/error.h"

namespace ferry {

ThreadPool::ThreadPool(int num_threads, std::chrono::microseconds spin, ThreadPoolObserver* observer)
    : num_threads_(num_threads), spin_(spin), observer_(observer) {
  FERRY_CHECK_GE(num_threads, 1);
  const int rank = check_context().rank;
  try {
    for (int i = 1; i < num_threads_; ++i) {
      threads_.emplace_back([this, i, rank] {
        check_context().rank = rank;
        if (observer_ != nullptr) observer_->thread_started(i);
        run_thread(i);
      });
    }
  } catch (const std::system_error& error) {
    const std::size_t started = threads_.size() + 1;
    stop_threads();
    throw Error(ErrorCode::kResourceExhausted, "--threads is " + std::to_string(num_threads) + "; the system gives " +
                                                   std::to_string(started) + ": " + error.what());
  }
}

ThreadPool::~ThreadPool() { stop_threads(); }

void ThreadPool::stop_threads() {
  stop_.store(true);
  generation_.fetch_add(1);
  generation_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::parallel_for(int64_t num_tasks, TaskRef task) {
  if (num_tasks <= 0) return;
  if (num_threads_ == 1 || num_tasks == 1) {
    for (int64_t i = 0; i < num_tasks; ++i) task(i, 0);
    return;
  }
  FERRY_CHECK(task_ == nullptr) << "parallel_for called from inside a task";
  FERRY_CHECK_LE(num_tasks, int64_t{std::numeric_limits<uint32_t>::max()});
  const auto count = static_cast<uint32_t>(num_tasks);
  task_ = &task;
  num_tasks_ = num_tasks;
  num_unfinished_.store(count, std::memory_order_relaxed);
  offer_.store({generation_.load(std::memory_order_relaxed) + 1, count}, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  run_tasks(0);
  const auto spin_end = std::chrono::steady_clock::now() + spin_;
  for (uint32_t left = num_unfinished_.load(std::memory_order_acquire); left != 0;
       left = num_unfinished_.load(std::memory_order_acquire)) {
    if (std::chrono::steady_clock::now() >= spin_end) num_unfinished_.wait(left, std::memory_order_acquire);
  }
  task_ = nullptr;
}

uint64_t ThreadPool::progress() const {
  const Offer offer = offer_.load(std::memory_order_relaxed);
  constexpr uint64_t kSpread = 0x9e3779b97f4a7c15;  // tells a task taken from a task done
  return ((uint64_t{offer.generation} << 32) | offer.num_left) + kSpread * num_unfinished_.load(std::memory_order_relaxed);
}

/// Runs one task of the open call as thread `thread_idx`; false if none is left.
bool ThreadPool::run_task(int thread_idx) {
  Offer offer = offer_.load(std::memory_order_acquire);
  do {
    if (offer.num_left == 0) return false;
  } while (!offer_.compare_exchange_weak(offer, {offer.generation, offer.num_left - 1}, std::memory_order_acq_rel,
                                         std::memory_order_acquire));
  (*task_)(num_tasks_ - offer.num_left, thread_idx);
  if (num_unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) num_unfinished_.notify_one();
  return true;
}

void ThreadPool::run_tasks(int thread_idx) {
  if (observer_ != nullptr) observer_->share_begins();
  int64_t num_done = 0;
  while (run_task(thread_idx)) ++num_done;
  if (observer_ != nullptr && num_done > 0) observer_->share_ends(num_done);
}

/// Returns when the generation is another than `seen`, with the new one.
uint32_t ThreadPool::wait_for_generation(uint32_t seen) {
  const auto spin_end = std::chrono::steady_clock::now() + spin_;
  while (true) {
    const uint32_t generation = generation_.load(std::memory_order_acquire);
    if (generation != seen) return generation;
    if (std::chrono::steady_clock::now() >= spin_end) {
      generation_.wait(seen, std::memory_order_acquire);
    } else {
      __builtin_ia32_pause();
    }
  }
}

void ThreadPool::run_thread(int thread_idx) {
  uint32_t seen = 0;
  while (true) {
    seen = wait_for_generation(seen);
    if (stop_.load()) return;
    run_tasks(thread_idx);
  }
}

void parallel_for_throwing(ThreadPool& pool, int64_t num_tasks, TaskRef task) {
  std::mutex mutex;
  std::exception_ptr error;
  pool.parallel_for(num_tasks, [&](int64_t task_idx, int thread_idx) {
    try {
      task(task_idx, thread_idx);
    } catch (...) {
      const std::scoped_lock lock(mutex);
      if (error == nullptr) error = std::current_exception();
    }
  });
  if (error != nullptr) std::rethrow_exception(error);
}

}  // namespace ferry

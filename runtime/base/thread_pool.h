#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace ferry {

/// A borrowed callable `void(int64_t task_idx, int thread_idx)`; no allocation, valid during the call only.
class TaskRef {
 public:
  template <class Fn>
  requires(!std::is_same_v<std::remove_cvref_t<Fn>, TaskRef>)
      TaskRef(Fn&& fn)  // NOLINT: implicit, so that a lambda can be passed where a TaskRef is asked for
      : object_(const_cast<void*>(static_cast<const void*>(&fn))), call_([](void* object, int64_t task_idx, int thread_idx) {
          (*static_cast<std::remove_reference_t<Fn>*>(object))(task_idx, thread_idx);
        }) {}
  void operator()(int64_t task_idx, int thread_idx) const { call_(object_, task_idx, thread_idx); }

 private:
  void* object_;
  void (*call_)(void*, int64_t, int);
};

/// Told what a pool's threads do, on those threads; must be quick.
class ThreadPoolObserver {
 public:
  virtual ~ThreadPoolObserver() = default;
  /// A thread of the pool has started; the caller's own, number 0, is not reported.
  virtual void thread_started(int thread_idx) = 0;
  /// Around a thread's share of a parallel_for that more than one thread may work on. A thread that comes too late to get a
  /// task begins a share and does not end it.
  virtual void share_begins() = 0;
  virtual void share_ends(int64_t num_tasks) = 0;
};

/// Fork-join over a fixed set of threads; the caller is thread 0 and works too. Tasks are handed out one by one, so their
/// order and owner vary: a task must not depend on either. A call returns when its tasks are done, whoever did them: a thread
/// that has to wait for a core, which other processes may hold for milliseconds, keeps nobody else waiting.
///
/// One thread at a time may call parallel_for; a task must not call it again. Idle threads spin for `spin`, then sleep:
/// zero where other processes need the cores.
class ThreadPool {
 public:
  /// Throws Error{kResourceExhausted} if the system gives no more threads.
  /// `observer`, if there is one, outlives the pool.
  explicit ThreadPool(int num_threads, std::chrono::microseconds spin = std::chrono::microseconds(0),
                      ThreadPoolObserver* observer = nullptr);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  /// Another value than before whenever a thread other than the caller of parallel_for, or beside it, took a task or was done
  /// with one. Any thread may ask.
  uint64_t progress() const;

  /// Runs task(0 ‥ num_tasks-1, thread_idx) and returns when all are done. Tasks must not throw.
  void parallel_for(int64_t num_tasks, TaskRef task);

 private:
  /// A call and how many of its tasks nobody has taken yet, in one word: a late thread can then take none of a call that is
  /// over.
  struct Offer {
    uint32_t generation;
    uint32_t num_left;
  };

  void stop_threads();
  void run_thread(int thread_idx);
  bool run_task(int thread_idx);
  void run_tasks(int thread_idx);
  uint32_t wait_for_generation(uint32_t seen);

  const int num_threads_;
  const std::chrono::microseconds spin_;
  ThreadPoolObserver* const observer_;
  const TaskRef* task_ = nullptr;  // of the open call, as num_tasks_; who has taken a task may read them
  int64_t num_tasks_ = 0;
  alignas(64) std::atomic<uint32_t> generation_{0};  // counts calls; threads wait for it to move
  alignas(64) std::atomic<Offer> offer_{Offer{0, 0}};
  alignas(64) std::atomic<uint32_t> num_unfinished_{0};  // tasks of the open call
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

/// parallel_for for tasks that may throw: all tasks run, then the first error is thrown again.
void parallel_for_throwing(ThreadPool& pool, int64_t num_tasks, TaskRef task);

}  // namespace ferry

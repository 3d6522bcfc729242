#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
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

/// Between what different threads write: two lines, since processors fetch them in pairs.
inline constexpr std::size_t kApartBytes = 128;

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

/// Fork-join over a fixed set of threads; the caller is thread 0 and works too. Each thread has an equal share of neighbouring
/// tasks, the same one in every call of as many tasks: what it wrote or read in one call it finds in its cores' caches, and in
/// its node's memory, in the next. It takes them in ascending order; who has none left takes the last one of whoever has the
/// most. So order and owner vary, and a task must not depend on either. A call returns when its tasks are done, whoever did
/// them: a thread that has to wait for a core, which other processes may hold for milliseconds, keeps nobody else waiting.
///
/// One thread at a time may call parallel_for; a task must not call it again. Idle threads spin for `spin`, then sleep:
/// zero where others need the cores.
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
  /// Whether a call finds its threads awake, if it comes soon after the last one: then it costs a microsecond or two.
  bool waits_awake() const { return spin_ > std::chrono::microseconds(0); }

  /// Another value than before whenever a thread took a task or was done with its last one. Any thread may ask.
  uint64_t progress() const;

  /// Runs task(0 ‥ num_tasks-1, thread_idx) and returns when all are done. Tasks must not throw.
  void parallel_for(int64_t num_tasks, TaskRef task);

 private:
  /// A call as threads see it, in one word. Pieces are what threads take: a task, or several neighbours of very many. (Clang
  /// takes a lock for an atomic whose type is aligned to less than a word.)
  struct alignas(uint64_t) Offer {
    uint32_t generation;
    uint32_t num_pieces;
  };
  /// What nobody has taken yet of the pieces that are one thread's by right, in the call `generation`. Whoever comes first in a
  /// newer call writes it anew. A thread that comes late for a call that is over finds nothing left, or a newer call.
  struct alignas(uint64_t) Share {
    uint32_t generation;
    uint16_t begin, end;
  };
  /// The lines of a thread: what others take from, and what the caller watches.
  struct Slot {
    alignas(kApartBytes) std::atomic<Share> share{Share{0, 0, 0}};
    alignas(kApartBytes) std::atomic<uint64_t> num_done{0};  // pieces, of all calls
  };
  enum class End : uint8_t { kFront, kBack };

  void stop_threads();
  void run_thread(int thread_idx);
  void run_pieces(int thread_idx);
  uint32_t run_own_pieces(const Offer& offer, int thread_idx);
  uint32_t run_others_pieces(const Offer& offer, int thread_idx);
  void run_piece(uint32_t piece, int thread_idx);
  void count_done(int thread_idx, uint32_t num_pieces);
  Share rightful_share(const Offer& offer, int thread_idx) const;
  Share left_of(const Offer& offer, Share share, int thread_idx) const;
  std::optional<uint32_t> take(const Offer& offer, int from_thread, End end);
  bool wait_for_call(uint32_t& seen);
  bool all_are_done() const;
  void wait_for_others();

  const int num_threads_;
  const std::chrono::microseconds spin_;
  ThreadPoolObserver* const observer_;
  std::vector<Slot> slots_;  // by thread
  // The open call; whoever has taken a piece may read what is not atomic.
  alignas(kApartBytes) const TaskRef* task_ = nullptr;
  int64_t num_tasks_ = 0;
  int64_t piece_tasks_ = 1;
  std::atomic<Offer> offer_{Offer{0, 0}};
  std::atomic<uint32_t> generation_{0};  // counts calls; threads wait for it to move
  std::atomic<bool> stop_{false};
  alignas(kApartBytes) std::atomic<bool> caller_sleeps_{false};
  std::atomic<uint32_t> num_wakes_{0};  // of the caller
  uint64_t num_offered_ = 0;            // pieces, of all calls; the caller's
  std::vector<std::thread> threads_;
};

/// parallel_for for tasks that may throw: all tasks run, then the first error is thrown again.
void parallel_for_throwing(ThreadPool& pool, int64_t num_tasks, TaskRef task);

}  // namespace ferry

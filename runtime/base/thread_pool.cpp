#include "runtime/base/thread_pool.h"

#include <algorithm>
#include <bit>
#include <exception>
#include <limits>
#include <mutex>
#include <string>
#include <system_error>

#include "runtime/base/check.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

constexpr int64_t kMostPieces = std::numeric_limits<uint16_t>::max();
constexpr int kWokenByEach = 2;

/// Whether `is_so` came true within `time`, or is so now.
template <class Condition>
bool spin_until(std::chrono::microseconds time, Condition&& is_so) {
  constexpr int kLooksPerClock = 16;  // reading the clock takes as long as a few looks
  if (is_so()) return true;
  if (time == std::chrono::microseconds(0)) return false;
  for (const auto end = std::chrono::steady_clock::now() + time; std::chrono::steady_clock::now() < end;) {
    for (int i = 0; i < kLooksPerClock; ++i) {
      if (is_so()) return true;
      __builtin_ia32_pause();
    }
  }
  return false;
}

}  // namespace

ThreadPool::ThreadPool(int num_threads, std::chrono::microseconds spin, ThreadPoolObserver* observer)
    : num_threads_(num_threads), spin_(spin), observer_(observer), slots_(static_cast<std::size_t>(std::max(num_threads, 0))) {
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
  task_ = &task;
  num_tasks_ = num_tasks;
  piece_tasks_ = (num_tasks + kMostPieces - 1) / kMostPieces;
  const auto num_pieces = static_cast<uint32_t>((num_tasks + piece_tasks_ - 1) / piece_tasks_);
  num_offered_ += num_pieces;
  const uint32_t generation = generation_.load(std::memory_order_relaxed) + 1;
  offer_.store({generation, num_pieces}, std::memory_order_release);
  generation_.store(generation, std::memory_order_seq_cst);  // before it is asked who sleeps, or one could sleep on
  for (int i = 0; i < kWokenByEach; ++i) generation_.notify_one();
  run_pieces(0);
  wait_for_others();
  task_ = nullptr;
}

uint64_t ThreadPool::progress() const {
  constexpr uint64_t kSpread = 0x9e3779b97f4a7c15;  // so that what one thread and another do does not cancel out
  uint64_t progress = 0;
  for (const Slot& slot : slots_) {
    progress = kSpread * (progress + std::bit_cast<uint64_t>(slot.share.load(std::memory_order_relaxed)));
    progress = kSpread * (progress + slot.num_done.load(std::memory_order_relaxed));
  }
  return progress;
}

/// The first thread has one of few pieces, since it is there already.
ThreadPool::Share ThreadPool::rightful_share(const Offer& offer, int thread_idx) const {
  const auto n = static_cast<uint64_t>(num_threads_), t = static_cast<uint64_t>(thread_idx);
  const auto begin = static_cast<uint16_t>((t * offer.num_pieces + n - 1) / n);
  const auto end = static_cast<uint16_t>(((t + 1) * offer.num_pieces + n - 1) / n);
  return {offer.generation, begin, end};
}

/// What `share`, which is thread_idx's, leaves of the call `offer`; an empty one if that call is over. A share of another call
/// was left behind by an older one if `offer` is still the newest, as no share is ahead of it.
ThreadPool::Share ThreadPool::left_of(const Offer& offer, Share share, int thread_idx) const {
  if (share.generation == offer.generation) return share;
  const bool is_over = offer_.load(std::memory_order_acquire).generation != offer.generation;
  return is_over ? Share{offer.generation, 0, 0} : rightful_share(offer, thread_idx);
}

/// A piece of those that are `from_thread`'s by right, if there is one left.
std::optional<uint32_t> ThreadPool::take(const Offer& offer, int from_thread, End end) {
  std::atomic<Share>& share = slots_[static_cast<std::size_t>(from_thread)].share;
  Share seen = share.load(std::memory_order_acquire);
  while (true) {
    Share left = left_of(offer, seen, from_thread);
    if (left.begin == left.end) return std::nullopt;
    const uint16_t piece = end == End::kFront ? left.begin++ : --left.end;
    if (share.compare_exchange_weak(seen, left, std::memory_order_acq_rel, std::memory_order_acquire)) return piece;
  }
}

void ThreadPool::run_piece(uint32_t piece, int thread_idx) {
  const int64_t first = piece * piece_tasks_, end = std::min(first + piece_tasks_, num_tasks_);
  for (int64_t i = first; i < end; ++i) (*task_)(i, thread_idx);
}

/// Tells the caller. The pair of this store and load, and the caller's in wait_for_others, are in one order: either this thread
/// sees that the caller sleeps, or the caller sees the count.
void ThreadPool::count_done(int thread_idx, uint32_t num_pieces) {
  std::atomic<uint64_t>& num_done = slots_[static_cast<std::size_t>(thread_idx)].num_done;
  num_done.store(num_done.load(std::memory_order_relaxed) + num_pieces, std::memory_order_seq_cst);
  if (!caller_sleeps_.load(std::memory_order_seq_cst)) return;
  num_wakes_.fetch_add(1, std::memory_order_release);
  num_wakes_.notify_one();
}

uint32_t ThreadPool::run_own_pieces(const Offer& offer, int thread_idx) {
  uint32_t num_done = 0;
  for (; const std::optional<uint32_t> piece = take(offer, thread_idx, End::kFront); ++num_done) run_piece(*piece, thread_idx);
  if (num_done > 0) count_done(thread_idx, num_done);
  return num_done;
}

/// One by one, the last of whoever has the most.
uint32_t ThreadPool::run_others_pieces(const Offer& offer, int thread_idx) {
  uint32_t num_done = 0;
  while (true) {
    int richest = -1, most = 0;
    for (int i = 1; i < num_threads_; ++i) {
      const int other = (thread_idx + i) % num_threads_;
      const Share left = left_of(offer, slots_[static_cast<std::size_t>(other)].share.load(std::memory_order_acquire), other);
      if (left.end - left.begin <= most) continue;
      most = left.end - left.begin;
      richest = other;
    }
    if (richest < 0) return num_done;
    const std::optional<uint32_t> piece = take(offer, richest, End::kBack);
    if (!piece) continue;
    run_piece(*piece, thread_idx);
    count_done(thread_idx, 1);
    ++num_done;
  }
}

/// What is there for thread `thread_idx` to do in the call that is open, or was a moment ago.
void ThreadPool::run_pieces(int thread_idx) {
  const Offer offer = offer_.load(std::memory_order_acquire);
  if (observer_ != nullptr) observer_->share_begins();
  const uint32_t num_own = run_own_pieces(offer, thread_idx), num_others = run_others_pieces(offer, thread_idx);
  if (observer_ != nullptr && num_own + num_others > 0) observer_->share_ends(num_own + num_others);
}

bool ThreadPool::all_are_done() const {
  uint64_t num_done = 0;
  for (const Slot& slot : slots_) num_done += slot.num_done.load(std::memory_order_seq_cst);
  return num_done == num_offered_;
}

void ThreadPool::wait_for_others() {
  if (spin_until(spin_, [this] { return all_are_done(); })) return;
  caller_sleeps_.store(true, std::memory_order_seq_cst);
  while (true) {
    const uint32_t seen = num_wakes_.load(std::memory_order_acquire);
    if (all_are_done()) break;
    num_wakes_.wait(seen, std::memory_order_acquire);
  }
  caller_sleeps_.store(false, std::memory_order_relaxed);
}

/// Returns when there is another call than `seen`, and which; false if the pool stops. Threads that slept wake others in turn:
/// the caller would wake them one after the other, and each costs it microseconds.
bool ThreadPool::wait_for_call(uint32_t& seen) {
  uint32_t generation = seen;
  const bool is_called = spin_until(spin_, [&] {
    generation = generation_.load(std::memory_order_acquire);
    return generation != seen;
  });
  if (!is_called) {
    generation_.wait(seen, std::memory_order_acquire);
    for (int i = 0; i < kWokenByEach; ++i) generation_.notify_one();
    generation = generation_.load(std::memory_order_acquire);
  }
  seen = generation;
  return !stop_.load();
}

void ThreadPool::run_thread(int thread_idx) {
  for (uint32_t seen = 0; wait_for_call(seen);) run_pieces(thread_idx);
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

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "profiler/stacks/stack_ring.h"
#include "profiler/stacks/stack_samples.h"

namespace ferry {

/// A thread whose stack may be sampled. It is the thread's own: made by it and taken down by it as it ends.
struct ThreadStack {
  int64_t tid = 0;
  uintptr_t top = 0;                        // one past the highest address of its stack; 0: not known, then it is not sampled
  std::atomic<StackRing*>* slot = nullptr;  // in which the thread's signal handler looks for its ring
  std::unique_ptr<StackRing> ring;          // from the first time on that it is sampled: its handler may always run once more
};

/// The calling thread's.
ThreadStack own_stack();

/// Samples the stacks of threads by their CPU time: each has a timer of its own that interrupts it when it has run for another
/// period, so that a thread that sleeps costs and counts nothing. The handler copies registers and the inner end of the stack,
/// takes no lock and allocates nothing; callers are found by whoever drains, by the tables that exceptions are thrown by, so
/// that the program needs no frame pointers.
///
/// One call at a time (the recorder's lock). What cannot be had throws nothing and is said in StackCapture::absent; add() and
/// finish() throw std::bad_alloc.
class StackSampler {
 public:
  static constexpr int64_t kPeriodNs = 1'000'000'000 / 199;  // of no simple ratio to what a program does by the millisecond

  StackSampler();
  ~StackSampler();
  StackSampler(const StackSampler&) = delete;
  StackSampler& operator=(const StackSampler&) = delete;

  /// From here on the thread is sampled, until remove() or the sampler's end, up to which `thread` must stand where it stands.
  void add(ThreadStack& thread);
  /// By the thread itself, as it ends.
  void remove(ThreadStack& thread);
  /// Takes what the handlers left; at least every StackRing::kCapacity periods.
  void drain();
  /// What was found, with the names that the symbol tables of this process's files have.
  StackCapture finish();

 private:
  struct Sampled;
  class Table;

  void take(Sampled& sampled);

  std::vector<Sampled> threads_;
  std::string absent_;
  std::unique_ptr<Table> table_;
};

}  // namespace ferry

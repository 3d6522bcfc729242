#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "runtime/base/types.h"

namespace ferry {

/// Lets the ranks of one host sleep until a neighbour has news for them. MPI can only poll, and a rank that polls takes the
/// core from those who compute. Each rank has a counter in memory that its host's ranks share; a ring adds 1 and wakes its
/// owner (futex).
///
/// A bell says "look again", nothing more: a rank looks, and sleeps only if nobody has rung since before it looked. Ranks of
/// other hosts cannot be rung, and MPI may have news without anyone calling it, so every sleep has a limit.
///
/// Threads: ring() and count() from any thread at any time; wait() from one.
class HostDoorbell {
  struct Bell;

 public:
  /// Lets the others see that this rank waits, while it lives.
  class Waiting {
   public:
    explicit Waiting(HostDoorbell& doorbell);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    Bell& bell_;
  };

  /// Collective over all ranks of the job, with MPI running. Where the system gives no memory to share, rings do nothing and
  /// waits last until their limit.
  explicit HostDoorbell(Rank rank);
  ~HostDoorbell();
  HostDoorbell(const HostDoorbell&) = delete;
  HostDoorbell& operator=(const HostDoorbell&) = delete;

  /// Wakes `to`, which may be the caller; does nothing for a rank of another host.
  void ring(Rank to);
  /// Whether `rank` is of this host and between the construction and the destruction of a Waiting.
  bool is_waiting(Rank rank) const;
  /// How often this rank was rung.
  uint32_t count() const;
  /// Returns when this rank was rung more than `seen` times, or after `limit`.
  void wait(uint32_t seen, std::chrono::microseconds limit);

 private:
  struct alignas(64) Bell {
    std::atomic<uint32_t> rings{0};
    std::atomic<uint32_t> is_waiting{0};
    std::atomic<uint32_t> is_asleep{0};  // whether its owner has to be woken
  };

  const Bell& mine() const { return *bells_[static_cast<std::size_t>(rank_.value)]; }
  Bell& mine() { return *bells_[static_cast<std::size_t>(rank_.value)]; }

  const Rank rank_;
  void* shared_ = nullptr;  // [ranks of this host] bells
  std::size_t shared_bytes_ = 0;
  Bell own_;                  // stands in where nothing can be shared
  std::vector<Bell*> bells_;  // [ranks of the job]; null on another host
};

}  // namespace ferry

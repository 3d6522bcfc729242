#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "comm/faulty/seeded_random.h"

namespace ferry {

/// What can go wrong between ranks, and with them.
enum class FaultKind {
  kDelay,      // a message comes late
  kDrop,       // a message never comes
  kDuplicate,  // a message comes twice
  kTruncate,   // a message loses its end
  kFlip,       // a bit of a message is another
  kCut,        // a connection breaks
  kPartition,  // some ranks cannot reach the others, for a while or for good
  kKill,       // a rank ends without a word
  kStop,       // a rank stands still for a while
  kSlow,       // a rank takes many times as long for its work, from then on; over links alone
};
inline constexpr int kNumFaultKinds = 10;

const char* fault_name(FaultKind kind);

/// One fault. It happens when the run's `message`-th message is sent, counted over all ranks; never if there are fewer.
struct Fault {
  FaultKind kind = FaultKind::kDelay;
  int64_t message = 0;
  std::chrono::nanoseconds duration{0};  // of a delay, a partition or a stop
  uint64_t choice = 0;                   // which bit, which end, which rank, how slow
};

/// How much longer than usual a rank takes for its work.
struct Slowness {
  double factor = 1;
  std::chrono::nanoseconds delay{0};  // beside it, each time

  std::chrono::nanoseconds of(std::chrono::nanoseconds work) const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(factor * work) + delay;
  }
};

/// The network's weather in one run.
struct Faults {
  std::chrono::nanoseconds min_delay{0}, max_delay{0};  // of every message
  std::chrono::nanoseconds patience{0};                 // what is late by no more than this breaks nothing
  std::vector<Fault> faults;
};

/// Draws weather: one run in eight has the usual delays alone, the others have one to three faults. They hit messages up to
/// `num_messages`, early ones more often. Half of the runs have faults that last no longer than the patience: a quarter of
/// `timeout`, but less than it takes to give up a host.
Faults draw_faults(SeededRandom& random, int64_t num_messages, std::chrono::nanoseconds timeout);
/// The same for ranks with links, on which messages are neither damaged nor doubled. A message that is lost or cut short is one
/// in whose place, or in whose middle, the link breaks.
Faults draw_link_faults(SeededRandom& random, int64_t num_messages, std::chrono::nanoseconds timeout);

}  // namespace ferry

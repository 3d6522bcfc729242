#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "profiler/capture.h"
#include "profiler/zones.h"

namespace ferry {

/// A step as its coordinator planned and timed it.
struct StepFacts {
  int64_t step = 0;
  uint64_t begin = 0, end = 0;  // ticks of the coordinator
  double seconds = 0;           // that it took
  Phase phase = Phase::kDecode;
  int64_t num_rows = 0;
  int64_t num_sequences = 0;
  int64_t num_keys = 0;  // that lay in the caches of its sequences, all of them together
};

/// Steps that ought to take as long as each other: their phase, their rows (up to 8 exactly, then within a tenth) and the keys
/// of a sequence (within a half of an octave).
struct StepKind {
  Phase phase = Phase::kDecode;
  uint8_t rows = 0;  // a class
  uint8_t keys = 0;  // likewise

  friend auto operator<=>(const StepKind&, const StepKind&) = default;
};
StepKind kind_of(const StepFacts& facts);

/// Why what a step recorded is kept.
enum class KeptFor : uint8_t {
  kSample,        // it was its turn
  kSlow,          // it was the slowest of its phase in its hour so far
  kLong,          // it took a multiple of what its like do
  kStopped,       // the same, and a rank did not run at all meanwhile
  kWorkerChange,  // a worker came to stand otherwise: late, lost, back
};
inline constexpr int kNumKeptFor = 5;
const char* kept_for_name(KeptFor why);  // "sample", "slow", "long", "stopped", "worker_change"
std::optional<KeptFor> kept_for(std::string_view name);
using CountsByReason = std::array<int64_t, kNumKeptFor>;  // in the order of KeptFor
constexpr bool is_anomaly(KeptFor why) { return why >= KeptFor::kLong; }

/// "12 sample, 3 long": those that are more than none.
std::string counts_text(const CountsByReason& counts);

/// A step that is kept, with what all ranks recorded of it; of an anomaly also with the steps right before it.
struct KeptStep {
  KeptFor why = KeptFor::kSample;
  StepFacts facts;
  Capture capture;
};

}  // namespace ferry

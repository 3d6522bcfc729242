#include "profiler/archive/kept_step.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace ferry {
namespace {

constexpr std::array<const char*, kNumKeptFor> kNames = {"sample", "slow", "long", "stopped", "worker_change"};

/// Up to 8 exactly, then classes of which each ends 1.1 times as far as the one before.
uint8_t rows_class(int64_t rows) {
  constexpr int64_t kExact = 8;
  if (rows <= kExact) return static_cast<uint8_t>(std::max<int64_t>(rows, 0));
  const double steps = std::log(static_cast<double>(rows) / kExact) / std::log(1.1);
  return static_cast<uint8_t>(std::min(kExact + 1 + std::floor(steps), 255.0));
}

/// Few keys take no time beside all else; from there on two classes an octave.
uint8_t keys_class(double keys) {
  constexpr double kFew = 256;
  return static_cast<uint8_t>(std::min(std::floor(2 * std::log2(1 + std::max(keys, 0.0) / kFew)), 255.0));
}

}  // namespace

StepKind kind_of(const StepFacts& facts) {
  const double keys = static_cast<double>(facts.num_keys) / static_cast<double>(std::max<int64_t>(facts.num_sequences, 1));
  return {.phase = facts.phase, .rows = rows_class(facts.num_rows), .keys = keys_class(keys)};
}

const char* kept_for_name(KeptFor why) { return kNames[static_cast<std::size_t>(why)]; }

std::optional<KeptFor> kept_for(std::string_view name) {
  const auto found = std::ranges::find(kNames, name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<KeptFor>(found - kNames.begin());
}

std::string counts_text(const CountsByReason& counts) {
  std::string text;
  for (std::size_t why = 0; why < counts.size(); ++why) {
    if (counts[why] > 0) text += (text.empty() ? "" : ", ") + std::to_string(counts[why]) + " " + kNames[why];
  }
  return text;
}

}  // namespace ferry

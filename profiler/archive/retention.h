#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "profiler/archive/kept_step.h"

namespace ferry {

/// What has to be known of a kept step to say how long it stays.
struct KeptSize {
  int64_t time_ns = 0;  // since 1970
  KeptFor why = KeptFor::kSample;
  Phase phase = Phase::kDecode;
  double seconds = 0;
  int64_t bytes = 0;
};

inline constexpr int kSlowestKept = 4;  // of an hour and a phase
inline constexpr int64_t kMaxAgeDays = 30;
inline constexpr double kAfterThinning = 0.95;  // of the bound, so that it is not done at every step

/// Indices of what goes so that the rest has at most `max_bytes`, ascending. `steps` are by time.
///
/// Three classes share the bound: anomalies have a half, the kSlowestKept of each hour and phase a quarter, all others a
/// quarter, and what a class leaves the others may have. Where it is too little, the class that is furthest beyond its share
/// gives up, again and again, the step that lies closest to its neighbours by its age: of old times exponentially fewer stay
/// than of recent ones, in every class, and no flood of one class costs another anything of its share. Of the slowest of hours
/// the fourth go first, then the third. What is older than kMaxAgeDays goes anyway.
std::vector<std::size_t> choose_to_drop(std::span<const KeptSize> steps, int64_t max_bytes, int64_t now_ns);

}  // namespace ferry

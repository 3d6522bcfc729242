#pragma once

#include <array>

#include "profiler/export/ascend_rank.h"
#include "profiler/report/timeline/intervals.h"

namespace ferry {

inline constexpr std::array<const char*, 4> kOverlapNames = {"Computing", "Communication", "Communication(Not Overlapped)",
                                                             "Free"};

/// The rank's whole time by what it did, in the order of kOverlapNames. Pieces are cut at every step's begin and end, so each
/// belongs to one step or to none.
std::array<IntervalSet, 4> find_overlap(const AscendRank& rank);

}  // namespace ferry

#pragma once

#include <vector>

#include "profiler/capture.h"

namespace ferry {

/// Joins captures of separate runs, perhaps of other hosts, into one on the first one's time. Ranks, steps and requests of the
/// later ones are renumbered to follow the earlier ones'. Runs on one host share its clock; others are placed by the hosts'
/// wall clocks, which is stated as a bound of kWallClockBoundNs. The model's facts and expert counts are the first one's.
Capture merge_captures(std::vector<Capture> captures);

/// Whether a capture was made so. Tables account for steps by one coordinator and its workers, so there are none of it.
bool is_merged(const Capture& capture);

/// What synchronised wall clocks can be trusted to.
inline constexpr double kWallClockBoundNs = 50e6;

}  // namespace ferry

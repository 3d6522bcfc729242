#pragma once

#include <array>
#include <cstdint>

namespace ferry {

/// Philox4x32 with 10 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 3.3): four words
/// that are a pure function of counter and key. No state, so a draw cannot depend on the draws of other sequences.
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// The `index`-th uniform number of the stream `seed`: a multiple of 2^-53 in [0, 1).
double counter_uniform(uint64_t seed, uint64_t index);

}  // namespace ferry

#pragma once

#include <cstddef>
#include <cstdint>

// What holds the read roofs (kernels/roof.h): plain loops over words, written in assembly with the widest loads, where no
// optimiser has a say.

namespace ferry {

/// `bytes` of the loops are a multiple of this; their data is aligned to 64.
inline constexpr std::size_t kLoopUnitBytes = 512;

/// The sum of the 64-bit words of `data`.
uint64_t sum_in_assembly(const std::byte* data, std::size_t bytes);

/// Likewise, and adds one to every word.
uint64_t add_one_in_assembly(std::byte* data, std::size_t bytes);

}  // namespace ferry

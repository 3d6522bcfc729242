#pragma once

#include <cstdint>

// Working memory of the vector kernels. Three buffers a thread, kept until the thread ends: they grow to the largest request
// and then never allocate again. Compiled without instruction-set flags, unlike the kernels that use it.

namespace ferry {

enum class Scratch { kMain, kRows, kParts };

/// The calling thread's buffer `which`: at least `num_floats` floats at a 64-byte boundary, with whatever the last user left in
/// it. A second call for it on the same thread takes the first one's memory back.
float* thread_scratch(int64_t num_floats, Scratch which = Scratch::kMain);

/// `count` rounded up to whole vectors of 16 floats.
constexpr int64_t round_up_16(int64_t count) { return (count + 15) / 16 * 16; }

}  // namespace ferry

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/base/types.h"

// What one thread of this processor can do at best, as the yardstick of benchmarks: nothing is loaded that is not streamed and
// nothing is multiplied that does not sit in a register.

namespace ferry {

/// How a thread walks over what it reads. Which one is fastest depends on the processor, on what else uses it, and on whether
/// the bytes lie in memory or in a cache.
enum class StreamPattern : uint8_t { kOne, kOnePrefetched, kFour, kFourPrefetched };
inline constexpr std::array kStreamPatterns = {StreamPattern::kOne, StreamPattern::kOnePrefetched, StreamPattern::kFour,
                                               StreamPattern::kFourPrefetched};

/// What it does there.
enum class StreamAccess : uint8_t {
  kRead,
  kRewrite,  // writes back what it reads, as ops do with states; caches take both ways at once
};

/// walk_stream takes multiples of this.
inline constexpr std::size_t kStreamUnitBytes = 512;

/// Reads every word of `data` once with the widest loads, and leaves it as it was. `data` is aligned to 64 bytes, `bytes` a
/// multiple of kStreamUnitBytes. Returns a checksum (the loads must have a use).
uint64_t walk_stream(std::byte* data, std::size_t bytes, StreamPattern pattern, StreamAccess access);

/// Multiplies and adds in registers `rounds` times and returns the number of operations done (a multiply-add is two).
/// `dtype` is what the factors are; sums are float32, of kI8 int32. Uses the unit that
/// multiply_unit names.
double multiply_in_registers(DType dtype, int64_t rounds, std::string_view matmul = "");

/// "amx_bf16", "amx_int8", "avx512_bf16", "avx512_vnni", "avx512_fma", "avx2_fma", …: the best that this
/// processor has and the kernels called `matmul` (make_cpu_matmul) use; of any other name, the best that there is.
const char* multiply_unit(DType dtype, std::string_view matmul = "");

}  // namespace ferry

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/matmul.h"
#include "kernels/quantize.h"

// The way back from panels (panel_layout.h) to the codes that they were made of, for who multiplies another layout.

namespace ferry {

/// The codes of a quantised matrix [n, k] that pack_panels() packed with `use`, as it got them: int4 scales that are not wide
/// without the mantissa bits that panels do not keep. `panels` holds num_panels * panel_bytes bytes. The threads of `pool`
/// share the panels if there is one.
QuantizedMatrix unpack_panels(int64_t n, int64_t k, WeightType type, WeightUse use, std::span<const std::byte> panels,
                              ThreadPool* pool = nullptr);

}  // namespace ferry

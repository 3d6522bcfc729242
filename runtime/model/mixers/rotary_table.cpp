#include "runtime/model/mixers/rotary_table.h"

#include <cmath>

#include "runtime/base/types.h"

namespace ferry {
namespace {

/// Whose positions frequency j reads: 0 time, 1 height, 2 width.
int64_t axis_of(const AttentionPlan& plan, int64_t j) {
  for (const int64_t axis : {1, 2})
    if (j % 3 == axis && j < 3 * plan.mrope_section[static_cast<std::size_t>(axis)]) return axis;
  return 0;
}

}  // namespace

void fill_rotary_table(const AttentionPlan& plan, DType dtype, std::span<const int32_t> positions, float* cos, float* sin) {
  const int64_t num_tokens = std::ssize(positions) / 3, half = plan.rotary_dim / 2;
  for (int64_t j = 0; j < half; ++j) {
    const float exponent = static_cast<float>(2 * j) / static_cast<float>(plan.rotary_dim);
    const float inv_freq = 1.0F / std::pow(static_cast<float>(plan.rope_theta), exponent);
    const int64_t axis = axis_of(plan, j);
    for (int64_t t = 0; t < num_tokens; ++t) {
      const float angle = static_cast<float>(positions[static_cast<std::size_t>(axis * num_tokens + t)]) * inv_freq;
      const float c = std::cos(angle), s = std::sin(angle);
      cos[t * half + j] = dtype == DType::kBF16 ? round_to<bfloat16>(c) : c;
      sin[t * half + j] = dtype == DType::kBF16 ? round_to<bfloat16>(s) : s;
    }
  }
}

}  // namespace ferry

#include "runtime/model/vision/patch_positions.h"

#include <algorithm>
#include <cmath>

namespace ferry {
namespace {

/// The two table rows next to a coordinate, and their weights.
struct AxisTaps {
  std::array<int64_t, 2> places{};
  std::array<float, 2> weights{};
};

AxisTaps axis_taps(int64_t index, int64_t size, int64_t side) {
  const float source =
      static_cast<float>(index) * static_cast<float>(side - 1) / static_cast<float>(std::max<int64_t>(size - 1, 1));
  const float floor = std::floor(source);
  AxisTaps taps;
  for (std::size_t i = 0; i < 2; ++i) {
    const float distance = std::abs(source - floor - static_cast<float>(i));
    taps.places[i] = std::clamp<int64_t>(static_cast<int64_t>(floor) + static_cast<int64_t>(i), 0, side - 1);
    taps.weights[i] = std::max(1.0F - distance, 0.0F);
  }
  return taps;
}

}  // namespace

PatchPlace patch_place(const Grid& grid, int64_t merge_size, int64_t patch_idx) {
  const int64_t in_block = patch_idx % (merge_size * merge_size), block = patch_idx / (merge_size * merge_size);
  const int64_t blocks_w = grid.w / merge_size;
  return {.row = block / blocks_w * merge_size + in_block / merge_size,
          .col = block % blocks_w * merge_size + in_block % merge_size};
}

PositionTaps position_taps(const Grid& grid, PatchPlace place, int64_t side) {
  const AxisTaps rows = axis_taps(place.row, grid.h, side), cols = axis_taps(place.col, grid.w, side);
  PositionTaps taps;
  for (std::size_t r = 0; r < 2; ++r) {
    for (std::size_t c = 0; c < 2; ++c) {
      taps.rows[2 * r + c] = rows.places[r] * side + cols.places[c];
      taps.weights[2 * r + c] = rows.weights[r] * cols.weights[c];
    }
  }
  return taps;
}

AxialRope::AxialRope(int64_t head_dim, double theta) {
  const auto axis_dim = static_cast<float>(head_dim / 2);
  for (int64_t j = 0; j < head_dim / 4; ++j) {
    inv_freq_.push_back(1.0F / std::pow(static_cast<float>(theta), static_cast<float>(2 * j) / axis_dim));
  }
}

void AxialRope::write(PatchPlace place, float* cos, float* sin) const {
  for (const int64_t position : {place.row, place.col}) {
    for (const float frequency : inv_freq_) {
      const float angle = static_cast<float>(position) * frequency;
      *cos++ = std::cos(angle);
      *sin++ = std::sin(angle);
    }
  }
}

}  // namespace ferry

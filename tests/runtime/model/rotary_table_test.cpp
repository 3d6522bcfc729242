#include "runtime/model/mixers/rotary_table.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace ferry {
namespace {

/// Of Qwen3.5.
AttentionPlan plan_of() {
  AttentionPlan plan;
  plan.rotary_dim = 64;
  plan.rope_theta = 1e7;
  plan.mrope_section = {11, 11, 10};
  return plan;
}

struct RotaryRows {
  RotaryRows(DType dtype, const std::vector<int32_t>& positions)
      : cos(positions.size() / 3 * 32, 7.0F), sin(positions.size() / 3 * 32, 7.0F) {
    fill_rotary_table(plan_of(), dtype, positions, cos.data(), sin.data());
  }
  std::vector<float> cos, sin;
};

double frequency(int64_t j) { return std::pow(1e7, -static_cast<double>(j) / 32); }

// Three roundings make an angle: of theta^x, of its inverse and of the product; a power is within an ulp, not half of one.
TEST(RotaryTable, IsTheFormulaInDoubleUpToTheAnglesRoundingAtTheEndOfTheContext) {
  const std::vector<int32_t> places = {0, 1, 4095, 131071, 262143};
  std::vector<int32_t> positions;
  for (int axis = 0; axis < 3; ++axis) positions.insert(positions.end(), places.begin(), places.end());
  const RotaryRows table(DType::kF32, positions);
  for (std::size_t t = 0; t < places.size(); ++t) {
    for (int64_t j = 0; j < 32; ++j) {
      const double angle = places[t] * frequency(j);
      const double bound = angle * 4 * 0x1p-24 + 0x1p-23;
      const std::size_t at = t * 32 + static_cast<std::size_t>(j);
      EXPECT_NEAR(table.cos[at], std::cos(angle), bound) << places[t] << ", frequency " << j;
      EXPECT_NEAR(table.sin[at], std::sin(angle), bound) << places[t] << ", frequency " << j;
    }
  }
}

// The first frequency is 1: its angles are exact, so nothing but the library's range reduction could be wrong.
TEST(RotaryTable, LargeAnglesAreReducedExactly) {
  for (int32_t position = 262143 - 2000; position <= 262143; ++position) {
    const RotaryRows table(DType::kF32, {position, position, position});
    EXPECT_NEAR(table.cos[0], std::cos(static_cast<double>(position)), 0x1p-23) << position;
    EXPECT_NEAR(table.sin[0], std::sin(static_cast<double>(position)), 0x1p-23) << position;
  }
}

// Each of the two angles is rounded once more than they have in common.
TEST(RotaryTable, NeighboursAtTheEndOfTheContextAreToldApart) {
  const RotaryRows table(DType::kF32, {262142, 262143, 262142, 262143, 262142, 262143});
  for (std::size_t j = 0; j < 32; ++j) {
    const double step = std::hypot(table.cos[32 + j] - table.cos[j], table.sin[32 + j] - table.sin[j]);
    const double angle = frequency(static_cast<int64_t>(j)), rounding = 2 * 262143 * angle * 0x1p-24;
    EXPECT_NEAR(step, 2 * std::sin(angle / 2), rounding + 0x1p-22) << "frequency " << j;
  }
}

TEST(RotaryTable, FrequenciesReadTheirAxisAndBfloat16IsRounded) {
  const RotaryRows table(DType::kF32, {0, 5, 9}), rounded(DType::kBF16, {0, 5, 9});
  constexpr std::array kOfAxis = {0.0, 5.0, 9.0};
  for (std::size_t j = 0; j < 32; ++j) {
    const std::size_t axis = j % 3 == 1 && j < 33 ? 1 : j % 3 == 2 && j < 30 ? 2 : 0;
    EXPECT_NEAR(table.sin[j], std::sin(kOfAxis[axis] * frequency(static_cast<int64_t>(j))), 1e-5) << "frequency " << j;
    EXPECT_NEAR(rounded.sin[j], table.sin[j], std::abs(table.sin[j]) * 0x1p-8) << "frequency " << j;
    EXPECT_EQ(rounded.sin[j], round_to<bfloat16>(table.sin[j]));
  }
}

}  // namespace
}  // namespace ferry

#include "runtime/actions/roofs.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

/// Sixteen experts of 2 MB in two layers, and 10 MB of every layer's own.
CaptureInfo two_layers() {
  CaptureInfo info;
  info.read_bytes_per_s = 40e9;
  info.expert_rank.assign(16, 0);
  info.model.operators = {{.zone = Zone::kGroupedGateUp, .num_layers = 2, .factors = Factors::kValues, .bytes = {.per_b = 2e6}},
                          {.zone = Zone::kInProjQkv, .num_layers = 2, .factors = Factors::kValues, .bytes = {.fixed = 10e6}},
                          {.zone = Zone::kInputNorm, .num_layers = 2, .factors = Factors::kNone, .bytes = {.fixed = 5e6}}};
  return info;
}

TEST(RoofsTest, WeightsAreWhatRowsAreMultipliedWith) {
  EXPECT_DOUBLE_EQ(weight_bytes(two_layers(), 16), 2 * (16 * 2e6 + 10e6));
  EXPECT_DOUBLE_EQ(weight_bytes(two_layers(), 0), 2 * 10e6);
}

TEST(RoofsTest, WeightsThatLieInCachesAreReadQuicker) {
  CaptureInfo info = two_layers();
  const double of_memory = streamed_bytes_per_s(info);
  EXPECT_LT(of_memory, info.read_bytes_per_s);
  info.expert_rank.assign(8, 0);  // 52 MB
  EXPECT_GT(streamed_bytes_per_s(info), info.read_bytes_per_s);
  info.read_bytes_per_s = 0;
  EXPECT_EQ(streamed_bytes_per_s(info), 0);
}

}  // namespace
}  // namespace ferry

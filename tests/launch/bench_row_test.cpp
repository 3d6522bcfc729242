#include "launch/bench_row.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <vector>

namespace ferry {
namespace {

TEST(BenchRow, NamesSayPhaseSizeAndDepth) {
  EXPECT_EQ((BenchCase{.phase = Phase::kPrefill, .size = 512, .depth = 0}.name()), "prefill 512");
  EXPECT_EQ((BenchCase{.phase = Phase::kPrefill, .size = 512, .depth = 8192}.name()), "prefill 512 @ 8192");
  EXPECT_EQ((BenchCase{.phase = Phase::kDecode, .size = 4, .depth = 32768}.name()), "decode 4 @ 32768");
}

TEST(BenchRow, JsonHasEachRepetitionAndTheWarmUp) {
  const BenchRow row{.what = {.phase = Phase::kDecode, .size = 2, .depth = 64},
                     .tokens_per_s = summarise({30, 10, 20}),
                     .work = {.bytes = 4, .flops = 6, .code_flops = 2},
                     .roofs = {.read_bytes_per_s = 100, .flops_per_s = 1000, .code_flops_per_s = 1000},
                     .warm_up = {.num_runs = 3, .seconds = 1.5, .is_steady = true},
                     .transport = {}};
  const nlohmann::ordered_json object = bench_row_json(row);
  EXPECT_EQ(object["sequences"], 2);
  EXPECT_EQ(object["depth"], 64);
  EXPECT_EQ(object["name"], "decode 2 @ 64");
  EXPECT_EQ(object["tokens_per_s"]["median"], 20);
  EXPECT_EQ(object["tokens_per_s"]["samples"], (std::vector<double>{30, 10, 20})) << "as they came";
  EXPECT_EQ(object["flops_per_token"], 8);
  EXPECT_DOUBLE_EQ(object["share_of_read"], 0.8);
  EXPECT_EQ(object["warm_up"]["runs"], 3);
  EXPECT_EQ(object["warm_up"]["is_steady"], true);
  EXPECT_EQ(object["transport_per_layer"], nullptr);
}

/// A row of so many tokens/s, each of which reads 1 byte, under a roof of 100 bytes/s.
BenchRow row_at(double tokens_per_s) {
  return {.what = {},
          .tokens_per_s = summarise({tokens_per_s}),
          .work = {.bytes = 1, .flops = 1, .code_flops = 0},
          .roofs = {.read_bytes_per_s = 100, .flops_per_s = 1000, .code_flops_per_s = 1000},
          .warm_up = {},
          .transport = {}};
}

TEST(BenchRow, IsMeasuredAgainWhileItsShareIsImpossible) {
  const auto measure = [](const std::vector<double>& rates, int most_rows) {
    std::size_t num_rows = 0;
    const BenchRow row = measure_possible_row(most_rows, [&] { return row_at(rates.at(num_rows++)); });
    EXPECT_EQ(num_rows, rates.size());
    return row.tokens_per_s.median;
  };
  EXPECT_EQ(measure({90}, 3), 90);
  EXPECT_EQ(measure({118, 95}, 3), 95);
  EXPECT_EQ(measure({118, 117, 116}, 3), 116) << "the bound";
}

}  // namespace
}  // namespace ferry

#include "moe/given_placement.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "tests/support/expect_error.h"

namespace ferry {
namespace {

using GivenLayer = std::vector<GivenExperts>;

void expect_given_refused(const GivenLayer& second_layer, const std::vector<std::string>& parts) {
  const GivenLayer right{{.rank = 1, .experts = {0, 1, 2}}};
  test::expect_error([&] { lay_out_given({right, second_layer}, 2, 3); }, ErrorCode::kInvalidArgument, parts);
}

TEST(GivenPlacement, ListsAreBySeat) {
  const GivenPlacement given{{{.rank = 3, .experts = {2, 0}}, {.rank = 1, .experts = {1}}},
                             {{.rank = 2, .experts = {}}, {.rank = 1, .experts = {0, 1, 2}}}};
  const std::vector<LayerPlacement> layers = lay_out_given(given, 2, 3);
  ASSERT_EQ(layers.size(), 2U);
  EXPECT_EQ(layers[0], (LayerPlacement{{{1}}, {}, {{2}, {0}}}));
  EXPECT_EQ(layers[1], (LayerPlacement{{{0}, {1}, {2}}, {}, {}}));
}

TEST(GivenPlacement, WhatIsWrongIsNamed) {
  test::expect_error([] { lay_out_given({}, 2, 3); }, ErrorCode::kInvalidArgument, {"of 0 layers", "the model's 2"});
  const std::vector<int32_t> all{0, 1, 2};
  for (const int64_t rank : {-1, 0, 65})
    expect_given_refused({{rank, all}}, {"layer 1: rank " + std::to_string(rank), "1 to 64"});
  expect_given_refused({{1, all}, {1, {}}}, {"layer 1: twice rank 1", "once"});
  expect_given_refused({{2, {0, 1, 2, 2}}}, {"layer 1: on rank 2", "experts of 4", "at most the model's 3"});
  expect_given_refused({{2, {0, 1, 1}}, {1, {2}}}, {"layer 1: expert 1 on rank 2 twice"});
  expect_given_refused({{2, {0, 1, 3}}}, {"layer 1: expert 3 on rank 2", "0 to 2"});
  expect_given_refused({{2, {0, -1, 1}}}, {"layer 1: expert -1 on rank 2"});
  expect_given_refused({{2, {0, 1}}}, {"layer 1: expert 2 on none"});
  expect_given_refused({}, {"layer 1: expert 0 on none"});
  expect_given_refused(GivenLayer(65, {1, all}), {"layer 1: a number of ranks of 65", "at most 64"});
}

TEST(GivenPlacement, HoldersGetRowsAndHaveRoom) {
  const std::vector<PlacedSeat> seats{{.gets_rows = true, .most_experts = 2}, {.gets_rows = false}, {.gets_rows = true}};
  std::vector<LayerPlacement> layers{{{{0}, {1}}}, {{{0}}, {}, {{1}}}};
  require_seats(layers, seats);
  for (const LayerPlacement& layer : layers) EXPECT_EQ(layer.size(), 3U);
  const auto refused = [&](const LayerPlacement& layer, const std::vector<std::string>& parts) {
    std::vector<LayerPlacement> wrong{layer};
    test::expect_error([&] { require_seats(wrong, seats); }, ErrorCode::kInvalidArgument, parts);
  };
  refused({{{0}, {1}, {2}}}, {"layer 0: on rank 1 a number of experts of 3", "at most 2"});
  refused({{{0}}, {{1}}}, {"layer 0: experts on rank 2", "stay: 1, 3"});
  refused({{}, {}, {}, {{1}}}, {"layer 0: experts on rank 4", "stay: 1, 3"});
  const std::vector<PlacedSeat> left{{.gets_rows = true}, {.gets_rows = false, .has_left = true}};
  std::vector<LayerPlacement> late{{{{0}}, {}}, {{{0}}, {{1}}}};
  test::expect_error([&] { require_seats(late, left); }, ErrorCode::kAborted,
                     {"layer 1: experts on rank 2, which has left since", "there are 1"});
  std::vector<LayerPlacement> alone{{{{0}}}};
  test::expect_error([&] { require_seats(alone, {}); }, ErrorCode::kInvalidArgument, {"no worker is there"});
}

}  // namespace
}  // namespace ferry

#include "moe/placement/eplb.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "tests/support/source_folder.h"

namespace ferry {
namespace {

using nlohmann::json;

/// What the original says of a layer; lists of slots without their padding.
void expect_layer(const json& golden, std::size_t l, const EplbLayer& layer) {
  EXPECT_EQ(layer.slot_expert, golden.at("phy2log")[l].get<std::vector<int32_t>>());
  EXPECT_EQ(layer.copies, golden.at("logcnt")[l].get<std::vector<int32_t>>());
  if (golden.contains("log2phy")) {
    for (std::size_t e = 0; e < layer.copies.size(); ++e) {
      auto slots = golden.at("log2phy")[l][e].get<std::vector<int32_t>>();
      slots.erase(std::remove(slots.begin(), slots.end(), -1), slots.end());
      EXPECT_EQ(layer.expert_slots[e], slots) << "expert " << e;
    }
  }
  for (std::size_t e = 0; e < layer.copies.size(); ++e) {
    EXPECT_EQ(layer.expert_slots[e].size(), static_cast<std::size_t>(layer.copies[e]));
    for (const int32_t slot : layer.expert_slots[e]) {
      EXPECT_EQ(layer.slot_expert[static_cast<std::size_t>(slot)], static_cast<int32_t>(e));
    }
  }
}

TEST(Eplb, EqualsTheOriginalInAllGoldenCases) {
  const json golden = read_json_file(test::source_folder() / "tests/golden/eplb/eplb.json");
  ASSERT_EQ(golden.at("cases").size(), 45U);
  for (const json& item : golden.at("cases")) {
    SCOPED_TRACE(item.at("name").get<std::string>());
    const EplbShape shape{.num_slots = item.at("num_replicas"),
                          .num_groups = item.at("num_groups"),
                          .num_nodes = item.at("num_nodes"),
                          .num_ranks = item.at("num_gpus")};
    for (std::size_t l = 0; l < item.at("phy2log").size(); ++l) {
      expect_layer(item, l, eplb(item.at("weight")[l].get<std::vector<float>>(), shape));
    }
  }
}

TEST(Eplb, TwoCopiesOnOneRankBecomeOne) {
  // Everything asks for expert 0: five of eight slots are its, on four ranks.
  const EplbLayer layer = eplb(std::vector<float>{100, 1, 1, 1}, {.num_slots = 8, .num_ranks = 4});
  EXPECT_EQ(layer.copies, (std::vector<int32_t>{5, 1, 1, 1}));
  const LayerPlacement placement = eplb_placement(layer, 4);
  std::vector<int> held(4, 0);
  for (const auto& experts : placement) {
    for (const LogicalExpertId expert : experts) ++held[static_cast<std::size_t>(expert.value)];
    EXPECT_EQ(std::count(experts.begin(), experts.end(), LogicalExpertId{0}), 1);
  }
  EXPECT_EQ(held, (std::vector<int>{4, 1, 1, 1}));
}

TEST(Eplb, SlotsAreRoundedUpToEqualShares) {
  EXPECT_EQ(eplb_num_slots(256, 0, 8), 256);
  EXPECT_EQ(eplb_num_slots(256, 0, 7), 259);
  EXPECT_EQ(eplb_num_slots(256, 10, 7), 266);
}

void expect_eplb_error(const std::vector<float>& rows, const EplbShape& shape, const std::string& message) {
  try {
    eplb(rows, shape);
    FAIL() << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(error.what(), message);
  }
}

TEST(Eplb, RefusesWhatDoesNotDivide) {
  const std::vector<float> rows(8, 1.0F);
  expect_eplb_error(rows, {.num_slots = 9, .num_ranks = 2}, "eplb: 9 slots over 2 ranks; allowed: a multiple");
  expect_eplb_error(rows, {.num_slots = 8, .num_groups = 3, .num_ranks = 2},
                    "eplb: 8 experts over 3 groups; allowed: a multiple");
  expect_eplb_error(rows, {.num_slots = 9, .num_groups = 2, .num_nodes = 2, .num_ranks = 3},
                    "eplb: 3 ranks over 2 nodes; allowed: a multiple");
  expect_eplb_error(rows, {.num_slots = 8, .num_ranks = 0}, "eplb: 8 slots over 0 ranks; allowed: a multiple");
  expect_eplb_error(rows, {.num_slots = 6, .num_ranks = 2},
                    "eplb: 6 slots for 8 experts; allowed: one expert or more, and a slot for each");
  expect_eplb_error({1, -1}, {.num_slots = 2, .num_ranks = 2}, "eplb: expert 1 has a load of -1.000000; allowed: 0 or more");
}

}  // namespace
}  // namespace ferry

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>

#include "profiler/export/ascend_rank.h"
#include "tests/profiler/export/ascend_folder.h"
#include "tests/support/made_capture.h"

namespace ferry {
namespace {

using nlohmann::json;
using test::AscendFolders;
using test::millionths;

/// Bytes that a rank sent to each other one, from the timeline: step, is dispatch, target -> bytes.
std::map<std::tuple<uint32_t, bool, int32_t>, int64_t> sent_by(const ReportInput& input, int32_t rank) {
  std::map<std::tuple<uint32_t, bool, int32_t>, int64_t> sent;
  for (const Slice& slice : input.timeline.slices) {
    if (input.timeline.lanes[static_cast<std::size_t>(slice.lane)].rank != rank) continue;
    if (slice.zone == Zone::kDispatchSend) sent[{slice.step, true, static_cast<int32_t>(slice.b)}] += slice.a;
    if (slice.zone == Zone::kCombineSend) sent[{slice.step, false, static_cast<int32_t>(slice.b)}] += slice.a;
  }
  return sent;
}

const json& bandwidth(const json& op) { return op.at("Communication Bandwidth Info"); }
const json& times(const json& op) { return op.at("Communication Time Info"); }

class AscendCommunication : public testing::Test {
 protected:
  static Capture make() {
    Capture capture = make_made_capture({.world_size = 5, .slow_rank = 3, .slow_factor = 4});
    capture.ranks[4].host = "alpha";  // beside the coordinator, the others elsewhere
    return capture;
  }
  const ReportInput input{make()};
  const AscendFolders folders{input};
};

TEST_F(AscendCommunication, TimesAddUpInEveryOperator) {
  for (int32_t r = 0; r < 5; ++r) {
    const json steps = folders.json(r, "communication.json");
    ASSERT_EQ(steps.size(), input.timeline.steps.size());
    for (const auto& [step, kinds] : steps.items()) {
      EXPECT_TRUE(kinds.at("p2p").empty());
      ASSERT_EQ(kinds.at("collective").size(), 9U) << step;  // dispatch and combine of four layers, and their sum
      std::map<std::string, int64_t> sums;
      for (const auto& [name, op] : kinds["collective"].items()) {
        const json& t = times(op);
        EXPECT_EQ(millionths(t.at("Elapse Time(ms)")),
                  millionths(t.at("Transit Time(ms)")) + millionths(t.at("Wait Time(ms)")) + millionths(t.at("Idle Time(ms)")));
        EXPECT_LE(millionths(t.at("Synchronization Time(ms)")), millionths(t.at("Wait Time(ms)")));
        EXPECT_GE(millionths(t.at("Transit Time(ms)")), 0);
        const double wait = t.at("Wait Time(ms)"), transit = t.at("Transit Time(ms)");
        EXPECT_NEAR(t.at("Wait Time Ratio").get<double>(), wait + transit == 0 ? 0 : wait / (wait + transit), 1e-4);
        if (name == "Total Op Info") continue;
        for (const char* const key : {"Elapse Time(ms)", "Transit Time(ms)", "Wait Time(ms)"})
          sums[key] += millionths(t.at(key));
      }
      for (const auto& [key, sum] : sums)
        EXPECT_EQ(millionths(times(kinds["collective"]["Total Op Info"]).at(key)), sum) << key;
    }
  }
}

TEST_F(AscendCommunication, WaitIsForTheSlowRank) {
  int64_t wait = 0, elapse = 0;
  const json steps = folders.json(0, "communication.json");
  for (const auto& [step, kinds] : steps.items()) {
    for (const auto& [name, op] : kinds.at("collective").items()) {
      if (!name.starts_with("hcom_alltoallv__combine_")) continue;
      wait += millionths(times(op).at("Wait Time(ms)"));
      elapse += millionths(times(op).at("Elapse Time(ms)"));
    }
  }
  EXPECT_GT(wait, 0);
  EXPECT_GT(2 * wait, elapse);
}

TEST_F(AscendCommunication, OperatorsHaveTheSameNamesOnAllRanks) {
  const json coordinator = folders.json(0, "communication.json");
  for (int32_t r = 1; r < 5; ++r) {
    const json steps = folders.json(r, "communication.json");
    for (const auto& [step, kinds] : steps.items()) {
      for (const auto& [name, op] : kinds.at("collective").items()) {
        EXPECT_TRUE(coordinator.at(step).at("collective").contains(name)) << name;
      }
    }
  }
}

TEST_F(AscendCommunication, MatrixRowsAreTheOperatorsSumsAndTheBytesSent) {
  for (int32_t r = 0; r < 5; ++r) {
    const auto sent = sent_by(input, r);
    const json operators = folders.json(r, "communication.json");
    const json matrix = folders.json(r, "communication_matrix.json");
    ASSERT_EQ(matrix.size(), input.timeline.steps.size());
    for (const StepInfo& step : input.timeline.steps) {
      const std::string key = "step" + std::to_string(step.step);
      std::map<std::string, std::pair<int64_t, int64_t>> of_group;  // bytes and ns by group
      for (const auto& [name, op] : operators.at(key).at("collective").items()) {
        if (name == "Total Op Info") continue;
        auto& [bytes, ns] = of_group[name.substr(name.find('@'))];
        for (const char* const way : {"SDMA", "RDMA"}) {
          if (!bandwidth(op).contains(way)) continue;
          bytes += millionths(bandwidth(op)[way].at("Transit Size(MB)"));
          ns += millionths(bandwidth(op)[way].at("Transit Time(ms)"));
        }
      }
      for (const bool is_dispatch : {true, false}) {
        const std::string group = "@" + collective_group_hash(is_dispatch);
        int64_t bytes = 0, ns = 0;
        for (const auto& [link, value] : matrix.at(key).at("collective").at("alltoallv-total" + group).items()) {
          const int32_t target = std::stoi(link.substr(link.find('-') + 1));
          EXPECT_EQ(std::stoi(link), r);
          const auto expected = sent.find({step.step, is_dispatch, target});
          EXPECT_EQ(millionths(value.at("Transit Size(MB)")), expected == sent.end() ? 0 : expected->second) << link;
          bytes += millionths(value.at("Transit Size(MB)"));
          ns += millionths(value.at("Transit Time(ms)"));
        }
        EXPECT_EQ(bytes, of_group.at(group).first);
        EXPECT_EQ(ns, of_group.at(group).second);
      }
    }
  }
}

TEST_F(AscendCommunication, LinksSayHowFarTheyGo) {
  const json links = folders.json(0, "communication_matrix.json")
                         .at("step0")
                         .at("collective")
                         .at("alltoallv-total@" + collective_group_hash(true));
  EXPECT_EQ(links.at("0-0").at("Transport Type"), "LOCAL");  // by which readers find the ranks of the group
  EXPECT_EQ(links.at("0-1").at("Transport Type"), "RDMA");
  EXPECT_EQ(links.at("0-4").at("Transport Type"), "HCCS");
}

TEST_F(AscendCommunication, SizesOfMessagesAreCounted) {
  const json steps = folders.json(0, "communication.json");
  for (const auto& [step, kinds] : steps.items()) {
    for (const auto& [name, op] : kinds.at("collective").items()) {
      for (const auto& [way, traffic] : bandwidth(op).items()) {
        int64_t bytes = 0, ns = 0;
        for (const auto& [size, amount] : traffic.at("Size Distribution").items()) {
          bytes += std::llround(std::stod(size) * 1e6) * amount.at(0).get<int64_t>();
          ns += millionths(amount.at(1));
        }
        EXPECT_EQ(bytes, millionths(traffic.at("Transit Size(MB)")));
        EXPECT_EQ(ns, millionths(traffic.at("Transit Time(ms)")));
        EXPECT_EQ(traffic.at("Large Packet Ratio"), 0.0);
      }
    }
  }
}

TEST(AscendCommunicationGroups, HashIsHcclsOwn) {
  // What msprof-analyze 26.2 computes for the groups' names, by which it joins its tables.
  EXPECT_EQ(collective_group_hash(true), "1566087531693019394");
  EXPECT_EQ(collective_group_hash(false), "5005200599990497167");
}

}  // namespace
}  // namespace ferry

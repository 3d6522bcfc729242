#include "profiler/export/kineto_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "profiler/export/busy_pieces.h"
#include "profiler/report/timeline/intervals.h"
#include "profiler/report/views/views.h"
#include "tests/profiler/export/ascend_folder.h"
#include "tests/support/made_capture.h"
#include "tests/support/small_capture.h"

namespace ferry {
namespace {

using nlohmann::json;

json read_trace(const ReportInput& input, int32_t rank) {
  const test::TempFolder folder;
  write_kineto_traces(input, folder.path());
  return json::parse(test::read_text(folder.path() / ("rank-" + std::to_string(rank) + ".pt.trace.json")));
}

int64_t whole_ns(const json& microseconds) { return std::llround(microseconds.get<double>() * 1e3); }

TEST(KinetoTrace, KernelsAddUpToWhatTheRankDid) {
  const ReportInput input(make_made_capture());
  for (int32_t rank = 0; rank < 3; ++rank) {
    std::vector<Interval> computing, communication;
    const json trace = read_trace(input, rank);
    for (const json& event : trace.at("traceEvents")) {
      if (event.value("cat", "") != "kernel") continue;
      const bool is_message = event.at("name").get<std::string>().starts_with("ncclDevKernel");
      (is_message ? communication : computing)
          .push_back({whole_ns(event.at("ts")), whole_ns(event.at("ts")) + whole_ns(event.at("dur"))});
    }
    const RankActivity& activity = input.activity[static_cast<std::size_t>(rank)];
    EXPECT_EQ(total(make_interval_set(computing)), total(activity.computing)) << rank;
    EXPECT_EQ(total(make_interval_set(communication)), total(activity.communication)) << rank;
  }
}

TEST(KinetoTrace, KernelsOfAnOperatorAreItsOwnTime) {
  const ReportInput input(make_made_capture());
  std::map<std::string, int64_t> found;
  const json trace = read_trace(input, 0);
  for (const json& event : trace.at("traceEvents")) {
    if (event.value("cat", "") == "kernel") found[event.at("name")] += whole_ns(event.at("dur"));
  }
  const Table table = make_operator_view(input);
  int compared = 0;
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    if (std::get<int64_t>(test::cell(table, r, "rank")) != 0 || test::text(table, r, "kind") != "compute") continue;
    EXPECT_EQ(found[test::text(table, r, "operator")], test::ns(table, r, "total_us")) << test::text(table, r, "operator");
    ++compared;
  }
  EXPECT_GT(compared, 5);
}

TEST(KinetoTrace, AWaitInsideAnOperatorIsNoKernel) {
  test::SmallCapture small(1, 100'000);
  small.span(0, Zone::kSample, 1000, 9000).span(0, Zone::kWaitDevice, 2000, 5000).span(0, Zone::kAdd, 6000, 7000);
  const ReportInput input(small.capture);
  const std::vector<BusyPiece> pieces = find_busy_pieces(input.timeline, find_main_lane(input.timeline, 0));
  ASSERT_EQ(pieces.size(), 4U);
  EXPECT_EQ(pieces[0].end_ns - pieces[0].begin_ns, 1000);
  EXPECT_EQ(pieces[1].end_ns - pieces[1].begin_ns, 1000);  // 5000…6000
  EXPECT_EQ(input.timeline.slices[static_cast<std::size_t>(pieces[2].slice)].zone, Zone::kAdd);
  EXPECT_EQ(pieces[3].end_ns - pieces[3].begin_ns, 2000);
}

TEST(KinetoTrace, LaunchesLeadFromCallsToKernels) {
  const json trace = read_trace(ReportInput(make_made_capture()), 0);
  std::map<int64_t, int> calls, launches, kernels, starts, ends;
  std::set<int64_t> called;
  int num_steps = 0;
  for (const json& event : trace.at("traceEvents")) {
    const std::string kind = event.value("cat", "");
    const json args = event.value("args", json::object());
    if (kind == "cpu_op") ++calls[args.at("External id")];
    if (kind == "Runtime") ++launches[args.at("correlation")];
    if (kind == "kernel") ++kernels[args.at("correlation")];
    if (kind == "kernel" && args.contains("External id")) called.insert(args.at("External id").get<int64_t>());
    if (kind == "ac2g") ++(event.at("ph") == "s" ? starts : ends)[event.at("id")];
    num_steps += event.at("name").get<std::string>().starts_with("ProfilerStep#") ? 1 : 0;
  }
  EXPECT_EQ(launches, kernels);
  EXPECT_EQ(kernels, starts);
  EXPECT_EQ(starts, ends);
  EXPECT_GT(kernels.size(), 20U);
  for (const auto& [id, count] : kernels) EXPECT_EQ(count, 1) << id;
  for (const auto& [id, count] : calls) EXPECT_TRUE(called.contains(id)) << id;
  EXPECT_GT(calls.size(), 20U);
  EXPECT_EQ(num_steps, 7);
  EXPECT_EQ(trace.at("distributedInfo").at("rank"), 0);
}

TEST(KinetoTrace, NamesMayBeAnything) {
  Capture capture = make_made_capture();
  const std::string hostile("a\0b\xff\"\n{", 7);
  capture.info.transport = hostile;
  capture.info.model.layer_types.assign(4, hostile);
  for (RankCapture& rank : capture.ranks) rank.host = rank.threads[0].name = hostile;
  for (OperatorFacts& facts : capture.info.model.operators) {
    for (TensorFacts& tensor : facts.inputs) tensor.type = hostile;
  }
  const json trace = read_trace(ReportInput(std::move(capture)), 0);  // which must be JSON
  EXPECT_EQ(trace.at("distributedInfo").at("transport"), std::string("a\0b\uFFFD\"\n(", 9));
}

}  // namespace
}  // namespace ferry

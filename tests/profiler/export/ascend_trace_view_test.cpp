#include <gmock/gmock.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "profiler/report/timeline/breakdown.h"
#include "tests/profiler/export/ascend_folder.h"
#include "tests/profiler/export/insight_lint.h"
#include "tests/support/made_capture.h"

namespace ferry {
namespace {

using nlohmann::json;
using test::AscendFolders;

constexpr int64_t kStartNs = 1'000'000;  // where the files' times begin

int64_t ns(const json& microseconds) { return std::llround(microseconds.get<double>() * 1000); }

/// The trace's events by process name, with lanes by their names.
class Trace {
 public:
  explicit Trace(const json& events) {
    std::map<int64_t, std::string> processes;
    std::map<std::pair<int64_t, int64_t>, std::string> threads;
    for (const json& event : events) {
      if (event.at("name") == "process_name") processes[event.at("pid")] = event.at("args").at("name");
      if (event.at("name") == "thread_name") threads[{event.at("pid"), event.at("tid")}] = event.at("args").at("name");
    }
    for (const json& event : events) {
      if (event.at("ph") == "M") continue;
      const std::string process = processes.at(event.at("pid"));
      if (event.at("ph") == "s" || event.at("ph") == "f") {
        flows.push_back({process, event});
        continue;
      }
      pids[process] = event.at("pid");
      lanes[process][event.at("ph") == "C" ? "" : threads.at({event.at("pid"), event.at("tid")})].push_back(event);
    }
  }

  std::map<std::string, std::map<std::string, std::vector<json>>> lanes;
  std::map<std::string, int64_t> pids;
  std::vector<std::pair<std::string, json>> flows;  // ends of arrows, with their process
};

std::vector<Capture> various_captures() {
  Capture odd = make_made_capture({.world_size = 3});
  odd.ranks[0].threads[0].name = "engine {0} \"x\"";
  odd.info.model.dtype = "b{f}16";
  Capture crowded =
      make_made_capture({.world_size = 2, .clock_offset_ns = 12345.5, .clock_drift = 3e-6, .clock_bound_ns = 700});
  // Every worker gets messages of two layers at once.
  for (RankCapture& rank : crowded.ranks) {
    const std::vector<SpanRecord> records = rank.threads[0].records;
    for (SpanRecord record : records) {
      if (zone_info(record.zone).kind != ZoneKind::kTransfer) continue;
      record.layer = static_cast<int16_t>(record.layer + 100);
      record.end += 31;
      rank.threads[0].records.push_back(record);
    }
  }
  return {make_made_capture({.world_size = 1}), make_made_capture({.world_size = 5, .slow_rank = 2, .slow_factor = 5}), odd,
          crowded, Capture{.info = {}, .ranks = {{.host = "h", .end = 10, .threads = {{.name = "t", .tid = 3}}}}}};
}

TEST(AscendTraceView, InsightsParserHasNothingToComplainOf) {
  for (Capture& capture : various_captures()) {
    const std::size_t num_ranks = capture.ranks.size();
    const ReportInput input(std::move(capture));
    const AscendFolders folders(input);
    for (std::size_t r = 0; r < num_ranks; ++r) {
      const std::string text = test::read_text(folders.output(static_cast<int32_t>(r), "trace_view.json"));
      EXPECT_TRUE(json::accept(text));
      EXPECT_EQ(text.front(), '[');
      EXPECT_THAT(lint_insight_trace(text), testing::IsEmpty()) << "rank " << r << " of " << num_ranks;
    }
  }
}

TEST(AscendTraceView, LinterSeesEveryFault) {
  const std::string name = R"({"name":"process_name","pid":511,"tid":0,"ph":"M","args":{"name":"p"}},)"
                           "\n"
                           R"({"name":"thread_name","pid":511,"tid":1,"ph":"M","args":{"name":"t"}},)"
                           "\n";
  const auto slice = [](const std::string& ts, const std::string& dur, const std::string& args = "{}",
                        const std::string& ph = "X") {
    return R"({"name":"a","pid":511,"tid":1,"ts":)" + ts + R"(,"dur":)" + dur + R"(,"ph":")" + ph + R"(","args":)" + args + "}";
  };
  const auto complaints = [&](const std::string& events) { return lint_insight_trace("[\n" + name + events + "\n]\n"); };
  EXPECT_THAT(complaints(slice("1.000", "2.000")), testing::IsEmpty());
  const auto has = [](const std::string& what) { return testing::Contains(testing::HasSubstr(what)); };
  EXPECT_THAT(complaints(slice("1.00", "2.000")), has("three decimals"));
  EXPECT_THAT(complaints(slice("\"1.000\"", "2.000")), has("three decimals"));
  EXPECT_THAT(complaints(slice("0.000", "2.000")), has("time 0"));
  EXPECT_THAT(complaints(slice("1.000", "2.000", "{}", "B")), has("phase 'B'"));
  EXPECT_THAT(complaints(slice("1.000", "2.000", R"({"k":"{"})")), has("brace"));
  EXPECT_THAT(complaints(slice("1.000", "2.000") + "," + slice("4.000", "2.000")), has("not one event"));
  EXPECT_THAT(complaints(slice("1.000", "2.000") + ",\n" + slice("2.500", "2.000")), has("overlap"));
  EXPECT_THAT(complaints(R"({"name":"a","pid":511,"tid":9,"ts":1.000,"dur":1.000,"ph":"X"})"), has("no name"));
  EXPECT_THAT(complaints(R"({"name":"a","pid":4294967296,"tid":1,"ts":1.000,"dur":1.000,"ph":"X"})"), has("pid out of range"));
  EXPECT_THAT(complaints(R"({"name":"c","pid":511,"tid":0,"ts":1.000,"ph":"C","args":{}})"), has("without values"));
  EXPECT_THAT(complaints(R"({"name":"f","cat":"f","id":1,"pid":511,"tid":1,"ts":1.000,"ph":"s"})"),
              has("one start and one end"));
  EXPECT_THAT(complaints(R"({"name":"process_sort_index","pid":511,"tid":0,"ph":"M","args":{"sort_index":3}})"),
              has("sort index"));
  EXPECT_THAT(complaints(R"({"name":"process_labels","pid":511,"tid":0,"ph":"M","args":{"labels":"NPU 0"}})"), has("device"));
  EXPECT_THAT(lint_insight_trace(R"({"events": [)"), has("bare array"));
  const std::string large = slice("1.000", "1.000", R"({"k":")" + std::string(1 << 20, 'x') + "\"}");
  EXPECT_THAT(complaints(large), has("the last event"));
  EXPECT_THAT(complaints(large + ",\n" + slice("2.000", "1.000")), has("no event within 1 MiB"));
}

TEST(AscendTraceView, ProcessIdsHoldWhoTheyAre) {
  const ReportInput input(make_made_capture({.world_size = 4}));  // one rank on alpha, three on beta
  const AscendFolders folders(input);
  const Trace first(folders.json(0, "trace_view.json"));
  EXPECT_EQ(first.pids.at("Ascend Hardware"), 4000 << 10 | 14 << 5 | 0);
  EXPECT_EQ(first.pids.at("Communication"), 4000 << 10 | 16 << 5 | 0);
  EXPECT_EQ(first.pids.at("Overlap Analysis"), 4000 << 10 | 31 << 5 | 0);
  EXPECT_EQ(first.pids.at("CANN"), 4000 << 10 | 7 << 5 | 31);
  EXPECT_EQ(first.pids.at("Requests") & 31, 31);
  EXPECT_EQ(first.pids.at("Counters") & 31, 31);
  EXPECT_EQ(Trace(folders.json(3, "trace_view.json")).pids.at("Overlap Analysis"), 4003 << 10 | 31 << 5 | 2);
}

TEST(AscendTraceView, OverlapLanesHoldTheStepTableAndTheWholeCapture) {
  const ReportInput input(make_made_capture({.world_size = 3, .slow_rank = 1, .slow_factor = 2.5}));
  const AscendFolders folders(input);
  const std::map<std::string, std::string> columns = {{"Computing", "Computing"},
                                                      {"Communication", "Communication"},
                                                      {"Communication(Not Overlapped)", "Communication(Not Overlapped)"},
                                                      {"Free", "Free"}};
  for (int32_t r = 0; r < 3; ++r) {
    const Trace trace(folders.json(r, "trace_view.json"));
    const auto& lanes = trace.lanes.at("Overlap Analysis");
    const auto rows = folders.csv(r, "step_trace_time.csv");
    int64_t whole = 0;
    for (const auto& [lane, column] : columns) {
      std::vector<int64_t> sums(rows.size(), 0);
      for (const json& event : lanes.at(lane)) {
        EXPECT_EQ(event.at("name"), lane);
        if (lane != "Communication") whole += ns(event.at("dur"));
        const int64_t at = ns(event.at("ts")) - kStartNs;
        for (std::size_t s = 0; s < rows.size(); ++s) {
          const StepInfo& step = input.timeline.steps[s];
          if (at >= step.begin_ns && at < step.end_ns) sums[s] += ns(event.at("dur"));
        }
      }
      for (std::size_t s = 0; s < rows.size(); ++s) EXPECT_EQ(sums[s], test::us_to_ns(rows[s].at(column))) << lane << " " << s;
    }
    EXPECT_EQ(whole, input.timeline.end_ns);
  }
}

TEST(AscendTraceView, EverySliceIsDrawnOnce) {
  const ReportInput input(make_made_capture({.world_size = 3}));
  const AscendFolders folders(input);
  for (int32_t r = 0; r < 3; ++r) {
    std::map<ZoneKind, int64_t> expected;
    for (const Slice& slice : input.timeline.slices) {
      if (input.timeline.lanes[static_cast<std::size_t>(slice.lane)].rank == r) ++expected[zone_info(slice.zone).kind];
    }
    const Trace trace(folders.json(r, "trace_view.json"));
    const auto count = [&](const std::string& process, const auto& is_counted) {
      int64_t num = 0;
      const auto found = trace.lanes.find(process);
      if (found == trace.lanes.end()) return num;
      for (const auto& [lane, events] : found->second) {
        for (const json& event : events) num += is_counted(lane, event) ? 1 : 0;
      }
      return num;
    };
    const auto is_any = [](const std::string&, const json&) { return true; };
    EXPECT_EQ(count("Ascend Hardware", is_any), expected[ZoneKind::kCompute]);
    EXPECT_EQ(count("Requests", is_any), expected[ZoneKind::kRequest]);
    EXPECT_EQ(count("CANN", [](const std::string& lane, const json&) { return lane != "steps"; }),
              expected[ZoneKind::kHost] + expected[ZoneKind::kWait]);
    EXPECT_EQ(count("CANN", [](const std::string& lane, const json&) { return lane == "steps"; }),
              static_cast<int64_t>(input.timeline.steps.size()));
    // A message without a wait is one slice, one that is all wait too.
    const auto is_message = [](const std::string& lane, const json& event) {
      return lane.starts_with("Plane") && event.at("name") != "Notify_Wait";
    };
    const auto is_wait = [](const std::string& lane, const json& event) {
      return lane.starts_with("Plane") && event.at("name") == "Notify_Wait";
    };
    EXPECT_LE(count("Communication", is_message), expected[ZoneKind::kTransfer]);
    EXPECT_GE(count("Communication", is_message) + count("Communication", is_wait), expected[ZoneKind::kTransfer]);
  }
}

TEST(AscendTraceView, ArrowsLeadFromStepsToOperatorsAndFromDispatchToCombine) {
  const ReportInput input(make_made_capture({.world_size = 3}));
  const AscendFolders folders(input);
  for (int32_t r = 0; r < 3; ++r) {
    const Trace trace(folders.json(r, "trace_view.json"));
    std::map<int64_t, std::vector<std::string>> operators;  // by begin
    for (const auto& [lane, events] : trace.lanes.at("Ascend Hardware")) {
      for (const json& event : events) operators[ns(event.at("ts"))].push_back(event.at("name"));
    }
    std::map<std::string, int> ends;
    for (const auto& [process, flow] : trace.flows) {
      const std::string cat = flow.at("cat"), side = flow.at("ph");
      ++ends[cat + " " + side];
      EXPECT_EQ(process, cat == "async_npu" && side == "s" ? "CANN" : "Ascend Hardware") << flow;
      if (process == "CANN") continue;
      const char* const name = cat == "async_npu" ? "" : side == "s" ? "MoeDistributeDispatch" : "MoeTokenUnpermute";
      EXPECT_THAT(operators[ns(flow.at("ts"))], testing::Contains(testing::StartsWith(name))) << flow;
    }
    EXPECT_GT(ends["async_npu s"], 10);
    EXPECT_EQ(ends["async_npu s"], ends["async_npu f"]);
    EXPECT_EQ(ends["moe s"], ends["moe f"]);
    EXPECT_EQ(ends["moe s"] > 0, r == 0) << "a worker holds neither end";
  }
}

TEST(AscendTraceView, SlicesSayWhereTheyBelong) {
  const ReportInput input(make_made_capture({.world_size = 3}));
  const AscendFolders folders(input);
  const Trace trace(folders.json(0, "trace_view.json"));
  for (const json& event : trace.lanes.at("Ascend Hardware").at("Stream 0")) {
    for (const char* const key : {"step", "phase", "part", "Task Type", "Task Id"})
      EXPECT_TRUE(event.at("args").contains(key)) << event;
  }
  const json& step = trace.lanes.at("CANN").at("steps").at(0);
  EXPECT_EQ(step.at("name"), "ProfilerStep#0");
  EXPECT_EQ(step.at("args"), (json{{"step", 0}, {"phase", "prefill"}, {"tokens", 24}, {"sequences", 1}}));
  for (const std::string group : {"dispatch", "combine"}) {
    for (const json& event : trace.lanes.at("Communication").at("Group ep_" + group + " Communication"))
      EXPECT_THAT(event.at("name").get<std::string>(), testing::StartsWith("hcom_alltoallv__" + group + "_"));
  }
}

}  // namespace
}  // namespace ferry

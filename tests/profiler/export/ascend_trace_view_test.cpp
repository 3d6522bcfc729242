#include <gmock/gmock.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "profiler/report/timeline/breakdown.h"
#include "tests/profiler/export/ascend_folder.h"
#include "tests/profiler/export/insight_lint.h"
#include "tests/support/made_capture.h"
#include "tests/support/small_capture.h"

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
  EXPECT_EQ(first.pids.at("Python"), 4000 << 10 | 31);
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
    EXPECT_EQ(count("CANN", [](const std::string&, const json& event) { return !event.at("args").contains("connection_id"); }),
              expected[ZoneKind::kHost] + expected[ZoneKind::kWait]);
    EXPECT_EQ(count("Python", [](const std::string& lane, const json&) { return lane != "steps"; }),
              expected[ZoneKind::kCompute]);
    EXPECT_EQ(count("Python", [](const std::string& lane, const json&) { return lane == "steps"; }),
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

/// Both ends of each arrow of a category, by its id.
std::map<int64_t, std::pair<json, json>> arrows_of(const Trace& trace, const std::string& category) {
  std::map<int64_t, std::pair<json, json>> arrows;
  for (const auto& [process, flow] : trace.flows) {
    if (flow.at("cat") != category) continue;
    auto& [start, end] = arrows[flow.at("id")];
    (flow.at("ph") == "s" ? start : end) = {{"process", process}, {"tid", flow.at("tid")}, {"ts", flow.at("ts")}};
  }
  return arrows;
}

/// The slices of a process that begin where an end of an arrow is.
std::vector<json> slices_at(const Trace& trace, const json& end) {
  std::vector<json> found;
  for (const auto& [lane, events] : trace.lanes.at(end.at("process"))) {
    for (const json& event : events) {
      if (event.at("tid") == end.at("tid") && event.at("ts") == end.at("ts")) found.push_back(event);
    }
  }
  return found;
}

TEST(AscendTraceView, ArrowsLeadFromDispatchToCombine) {
  const ReportInput input(make_made_capture({.world_size = 3}));
  const AscendFolders folders(input);
  for (int32_t r = 0; r < 3; ++r) {
    const Trace trace(folders.json(r, "trace_view.json"));
    const auto arrows = arrows_of(trace, "moe");
    EXPECT_EQ(arrows.empty(), r != 0) << "a worker holds neither end";
    for (const auto& [id, ends] : arrows) {
      bool is_dispatch = false, is_combine = false;
      for (const json& slice : slices_at(trace, ends.first))
        is_dispatch |= slice.at("name").get<std::string>().starts_with("MoeDistributeDispatch");
      for (const json& slice : slices_at(trace, ends.second))
        is_combine |= slice.at("name").get<std::string>().starts_with("MoeTokenUnpermute");
      EXPECT_TRUE(is_dispatch && is_combine) << id;
    }
  }
}

TEST(AscendTraceView, ArrowsLeadFromCallsToWhatTheyLaunched) {
  const ReportInput input(make_made_capture({.world_size = 3}));
  const AscendFolders folders(input);
  for (int32_t r = 0; r < 3; ++r) {
    const Trace trace(folders.json(r, "trace_view.json"));
    std::map<int64_t, std::string> launched;  // by connection
    for (const std::string process : {"Ascend Hardware", "Communication"}) {
      for (const auto& [lane, events] : trace.lanes.at(process)) {
        for (const json& event : events) {
          if (event.at("args").contains("connection_id") && event.at("dur") > 0) {
            EXPECT_TRUE(launched.emplace(event["args"]["connection_id"], event.at("name")).second) << event;
          }
        }
      }
    }
    const auto launches = arrows_of(trace, "HostToDevice");
    ASSERT_EQ(launches.size(), launched.size());
    EXPECT_GT(launches.size(), 10U);
    for (const auto& [connection, ends] : launches) {
      EXPECT_EQ(ends.first.at("process"), "CANN");
      for (const json& end : {ends.first, ends.second}) {
        bool is_there = false;
        for (const json& slice : slices_at(trace, end)) is_there |= slice.at("args").value("connection_id", -1) == connection;
        EXPECT_TRUE(is_there) << end;
      }
    }
    for (const auto& [id, ends] : arrows_of(trace, "async_npu")) {
      std::set<std::string> calls, kernels;
      for (const json& slice : slices_at(trace, ends.first)) calls.insert(slice.at("name"));
      for (const json& slice : slices_at(trace, ends.second)) kernels.insert(slice.at("name"));
      EXPECT_EQ(ends.first.at("process"), "Python");
      EXPECT_EQ(ends.second.at("process"), "Ascend Hardware");
      EXPECT_EQ(calls, kernels);
    }
  }
}

TEST(AscendTraceView, ADevicesKernelsComeFromWhatTheThreadHandedOver) {
  const AscendFolders folders{ReportInput(test::device_capture().capture)};
  const Trace trace(folders.json(0, "trace_view.json"));
  std::vector<std::string> launches, kernels;
  for (const json& event : trace.lanes.at("CANN").at("engine")) {
    if (event.at("name") == "Node@launch")
      launches.push_back(std::to_string(event.at("args").at("connection_id").get<int64_t>()) + " " +
                         std::to_string(ns(event.at("dur"))));
  }
  for (const json& event : trace.lanes.at("Ascend Hardware").at("Stream 1"))
    kernels.push_back(std::to_string(event.at("args").at("connection_id").get<int64_t>()) + " " +
                      event.at("name").get<std::string>());
  EXPECT_THAT(launches, testing::ElementsAre("1 100", "2 200", "3 100", "4 0"));
  EXPECT_THAT(kernels, testing::ElementsAre("1 Add", "2 MatMul.o_proj", "3 Add", "3 Add", "5 Memcpy"));
  EXPECT_EQ(arrows_of(trace, "HostToDevice").size(), 4U) << "one to the first piece, none from a call that nobody saw";
  EXPECT_EQ(arrows_of(trace, "async_npu").size(), 5U);
}

TEST(AscendTraceView, CallsEndBeforeTheNextBegins) {
  const ReportInput input(make_made_capture({.world_size = 3}));
  const AscendFolders folders(input);
  for (int32_t r = 0; r < 3; ++r) {
    const Trace trace(folders.json(r, "trace_view.json"));
    for (const auto& [lane, events] : trace.lanes.at("Python")) {
      std::set<int64_t> begins, ends;
      for (const json& event : events) {
        EXPECT_EQ(event.at("cat"), "cpu_op");
        begins.insert(ns(event.at("ts")));
        if (event.at("dur") > 0) ends.insert(ns(event.at("ts")) + ns(event.at("dur")));
      }
      for (const int64_t end : ends)
        EXPECT_FALSE(begins.contains(end)) << lane << ": a reader would take the next one to be inside";
    }
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
  const json& step = trace.lanes.at("Python").at("steps").at(0);
  EXPECT_EQ(step.at("name"), "ProfilerStep#0");
  EXPECT_EQ(step.at("args"), (json{{"step", 0}, {"phase", "prefill"}, {"tokens", 24}, {"sequences", 1}}));
  for (const std::string group : {"dispatch", "combine"}) {
    for (const json& event : trace.lanes.at("Communication").at("Group ep_" + group + " Communication"))
      EXPECT_THAT(event.at("name").get<std::string>(), testing::StartsWith("hcom_alltoallv__" + group + "_"));
  }
}

}  // namespace
}  // namespace ferry

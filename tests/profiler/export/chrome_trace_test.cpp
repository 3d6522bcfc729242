#include "profiler/export/chrome_trace.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "profiler/capture_merge.h"
#include "profiler/export/outline.h"
#include "profiler/export/trace_facts.h"
#include "tests/support/drawn_flows.h"
#include "tests/support/expect_error.h"
#include "tests/support/made_capture.h"
#include "tests/support/small_capture.h"

namespace ferry {
namespace {

using nlohmann::json;

std::string written(const ReportInput& input) {
  std::ostringstream out;
  write_chrome_trace(input, out);
  return out.str();
}

/// Nanoseconds of a time in microseconds.
int64_t ns(const json& microseconds) { return std::llround(microseconds.get<double>() * 1000); }

/// Categories of what is drawn beside recorded slices.
const std::set<std::string> kDrawn{"outline", "overview", "critical path"};

using Place = std::pair<int64_t, int64_t>;  // pid, tid
Place place_of(const json& event) { return {event.at("pid"), event.at("tid")}; }

std::vector<json> events_of(const json& trace, const std::string& phase) {
  std::vector<json> result;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") == phase) result.push_back(event);
  }
  return result;
}

TEST(ChromeTrace, HeaderComesFirstAndEventsAreOneALine) {
  const ReportInput input(make_made_capture({.world_size = 3}));
  const std::string text = written(input);
  const json trace = json::parse(text);
  EXPECT_EQ(trace.at("schemaVersion"), 1);
  EXPECT_EQ(trace.at("displayTimeUnit"), "ns");
  EXPECT_EQ(trace.at("baseTimeNanoseconds"), 1'760'000'000'000'000'000 - kTraceStartNs);
  EXPECT_EQ(trace.at("distributedInfo"), (json{{"backend", "mpi"}, {"rank", 0}, {"world_size", 3}}));
  EXPECT_LT(text.find("traceEvents"), 1000U);
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  EXPECT_THAT(line, testing::EndsWith("\"traceEvents\": ["));
  for (const json& event : trace.at("traceEvents")) {
    ASSERT_TRUE(std::getline(lines, line));
    if (line.back() == ',') line.pop_back();
    EXPECT_EQ(json::parse(line), event);
  }
  std::getline(lines, line);
  EXPECT_EQ(line, "]}");
}

TEST(ChromeTrace, OnlyPhasesThatAllReadersKnowAndTimesWithThreeDecimals) {
  const std::string text = written(ReportInput(make_made_capture({})));
  const json trace = json::parse(text);
  const std::set<std::string> known = {"M", "X", "C", "s", "t", "f"};
  for (const json& event : trace.at("traceEvents")) EXPECT_TRUE(known.contains(event.at("ph"))) << event;
  for (const std::string key : {"\"ts\":", "\"dur\":"}) {
    for (std::size_t at = text.find(key); at != std::string::npos; at = text.find(key, at + 1)) {
      const std::string number = text.substr(at + key.size(), text.find_first_of(",}", at) - at - key.size());
      ASSERT_THAT(number, testing::MatchesRegex("[0-9]+\\.[0-9][0-9][0-9]"));
      if (key == "\"ts\":") {
        EXPECT_GE(std::atof(number.c_str()), 1000.0);
      }
    }
  }
}

TEST(ChromeTrace, HoldsEverySliceOfTheTimelineOnce) {
  const ReportInput input(make_made_capture({.world_size = 4, .num_layers = 3}));
  const Outline outline(input);
  const json trace = json::parse(written(input));
  std::multiset<std::tuple<std::string, int64_t, int64_t>> expected, got;
  for (const Slice& slice : input.timeline.slices) {
    expected.insert({std::string(outline.slice_name(slice)), slice.begin_ns + kTraceStartNs, slice.duration_ns()});
  }
  for (const json& event : events_of(trace, "X")) {
    if (kDrawn.contains(event.at("cat"))) continue;
    got.insert({event.at("name"), ns(event.at("ts")), ns(event.at("dur"))});
  }
  EXPECT_EQ(got, expected);
  EXPECT_EQ(events_of(trace, "C").size(), input.timeline.counters.size());
}

TEST(ChromeTrace, SumsByNameCountNoOperatorTwice) {
  const ReportInput input(make_made_capture({.world_size = 4}));
  ASSERT_FALSE(input.critical_path.empty());
  std::map<std::string, int64_t> expected, found;
  for (const Slice& slice : input.timeline.slices) {
    if (kind_of(slice) == ZoneKind::kCompute) expected[zone_info(slice.zone).name] += slice.duration_ns();
  }
  for (const json& event : events_of(json::parse(written(input)), "X")) {
    if (expected.contains(event.at("name"))) found[event.at("name")] += ns(event.at("dur"));
  }
  EXPECT_EQ(found, expected);
}

TEST(ChromeTrace, SlicesOfALaneAreDisjointOrNested) {
  Capture capture = make_made_capture({.world_size = 4, .slow_rank = 3, .slow_factor = 2.5});
  capture.ranks[0].threads[0].tid = 1001;  // as a lane of messages is numbered
  const ReportInput input(std::move(capture));
  std::map<Place, std::vector<json>> lanes;
  for (const json& event : events_of(json::parse(written(input)), "X")) lanes[place_of(event)].push_back(event);
  EXPECT_EQ(lanes.size(), input.timeline.lanes.size() + Outline(input).overview().size());
  for (const auto& [place, slices] : lanes) {
    std::vector<int64_t> ends;
    int64_t last_begin = 0;
    for (const json& slice : slices) {
      const int64_t begin = ns(slice.at("ts")), end = begin + ns(slice.at("dur"));
      EXPECT_GE(begin, last_begin);
      last_begin = begin;
      while (!ends.empty() && ends.back() <= begin) ends.pop_back();
      if (!ends.empty()) {
        EXPECT_LE(end, ends.back()) << slice;
      }
      ends.push_back(end);
    }
  }
}

TEST(ChromeTrace, ArrowsBindToTheSlicesTheyMean) {
  const ReportInput input(make_made_capture({.world_size = 3}));
  const json trace = json::parse(written(input));
  std::map<Place, json> last_slice;  // the slice written before an arrow's end on the same lane
  std::map<uint64_t, std::map<std::string, json>> arrows;
  for (const json& event : trace.at("traceEvents")) {
    const std::string phase = event.at("ph");
    if (phase == "X") last_slice[place_of(event)] = event;
    if (phase != "s" && phase != "t" && phase != "f") continue;
    const json& slice = last_slice.at(place_of(event));
    EXPECT_GE(ns(event.at("ts")), ns(slice.at("ts")));
    EXPECT_LT(ns(event.at("ts")), ns(slice.at("ts")) + ns(slice.at("dur")));
    EXPECT_EQ(slice.at("name"), phase == "s" ? "MoeDistributeDispatch" : phase == "t" ? "MoeExperts" : "MoeTokenUnpermute");
    EXPECT_EQ(event.value("bp", ""), phase == "f" ? "e" : "");
    EXPECT_EQ(event.at("name"), "moe");
    EXPECT_EQ(event.at("cat"), "moe");
    EXPECT_TRUE(event.at("id").is_number_unsigned());
    EXPECT_TRUE(arrows[event.at("id")].emplace(phase, event).second) << "twice: " << event;
  }
  EXPECT_EQ(arrows.size(), test::num_drawn_flows(input.timeline));
  ASSERT_GT(arrows.size(), 10U);
  for (const auto& [id, ends] : arrows) {
    ASSERT_EQ(ends.size(), 3U) << id;
    EXPECT_LT(ns(ends.at("s").at("ts")), ns(ends.at("t").at("ts")));
    EXPECT_LT(ns(ends.at("t").at("ts")), ns(ends.at("f").at("ts")));
    EXPECT_EQ(ends.at("s").at("pid"), 0);
    EXPECT_NE(ends.at("t").at("pid"), 0);
    EXPECT_EQ(ends.at("f").at("pid"), 0);
  }
}

TEST(ChromeTrace, AnArrowAgainstTimeIsLeftOutWhole) {
  // The clock of the workers is wrong by more than they say: experts seem to run before their rows were sent.
  Capture capture = make_made_capture({.world_size = 3});
  for (std::size_t r = 1; r < 3; ++r) capture.ranks[r].alignment.offset_ns -= 20'000;
  const ReportInput input(std::move(capture));
  ASSERT_GT(input.timeline.flows.size(), 10U);
  const json trace = json::parse(written(input));
  EXPECT_EQ(events_of(trace, "s").size(), events_of(trace, "t").size());
  EXPECT_EQ(events_of(trace, "s").size(), events_of(trace, "f").size());
  EXPECT_LT(events_of(trace, "s").size(), input.timeline.flows.size());
}

TEST(ChromeTrace, ProcessIsTheRankAndLanesAreNamedInOrder) {
  Capture capture = make_made_capture({.world_size = 3, .clock_bound_ns = 1500});
  capture.ranks[2].threads[0].num_lost = 9;
  const ReportInput input(std::move(capture));
  const json trace = json::parse(written(input));
  std::map<std::string, std::map<Place, json>> said;
  for (const json& event : events_of(trace, "M")) {
    EXPECT_TRUE(said[event.at("name")].emplace(place_of(event), event.at("args").begin().value()).second) << event;
  }
  EXPECT_EQ(said["process_name"][Place(0, 0)], "rank 0 coordinator (alpha)");
  EXPECT_EQ(said["process_name"][Place(1, 0)], "rank 1 worker (beta)");
  EXPECT_EQ(said["process_labels"][Place(1, 0)], "host beta, process 4001, clock within 2 us");
  EXPECT_EQ(said["process_sort_index"][Place(2, 0)], 2);
  EXPECT_EQ(said["thread_name"][Place(0, 5000)], "engine");
  EXPECT_EQ(said["thread_name"][Place(2, 5002)], "experts (9 spans lost)");
  EXPECT_EQ(said["thread_name"].size(), input.timeline.lanes.size() + Outline(input).overview().size());
  EXPECT_EQ(said["thread_sort_index"].size(), input.timeline.lanes.size() + Outline(input).overview().size());
}

TEST(ChromeTrace, ADeviceHasALaneOfItsOwn) {
  const json trace = json::parse(written(ReportInput(test::device_capture().capture)));
  Place device;
  for (const json& event : events_of(trace, "M")) {
    if (event.at("name") == "thread_name" && event.at("args").at("name") == "GPU") device = place_of(event);
    if (event.at("name") == "process_labels") {
      EXPECT_NE(event.at("args").at("labels").get<std::string>().find("device GPU, clock calibrated"), std::string::npos);
    }
  }
  std::map<std::string, int64_t> computing_ns, handing_over_ns;
  int64_t num_beside = 0;
  for (const json& event : events_of(trace, "X")) {
    const bool is_operator = event.at("name") == "Add" || event.at("name") == "MatMul.o_proj";
    if (!is_operator) continue;
    const bool is_on_device = place_of(event) == device;
    EXPECT_EQ(event.at("cat"), is_on_device ? "comp" : "host");
    (is_on_device ? computing_ns : handing_over_ns)[event.at("name")] += ns(event.at("dur"));
    num_beside += event.at("args").value("beside", 0);
  }
  EXPECT_EQ(computing_ns, (std::map<std::string, int64_t>{{"Add", 2000}, {"MatMul.o_proj", 1500}}));
  EXPECT_EQ(handing_over_ns, (std::map<std::string, int64_t>{{"Add", 200}, {"MatMul.o_proj", 200}}));
  EXPECT_EQ(num_beside, 2) << "one beside each of the two that ran side by side";
}

TEST(ChromeTrace, ArgsOfAZoneAreAlwaysTheSame) {
  const json trace = json::parse(written(ReportInput(make_made_capture({}))));
  std::map<std::string, std::set<std::string>> keys;
  for (const json& event : events_of(trace, "X")) {
    std::set<std::string> own;
    for (const auto& [key, value] : event.at("args").items()) own.insert(key);
    if (kDrawn.contains(event.at("cat"))) {
      const std::set<std::string> of_path{"kind", "rank", "step"};
      EXPECT_EQ(own, event.at("cat") == "critical path" ? of_path : std::set<std::string>()) << event;
      continue;
    }
    const auto [known, is_new] = keys.emplace(event.at("name"), own);
    EXPECT_EQ(known->second, own) << event;
    const bool has_stream = event.at("cat") == "comp" || event.at("cat") == "comm";
    EXPECT_EQ(own.contains("stream"), has_stream) << event;
  }
  EXPECT_THAT(keys.at("MatMul.router"), testing::ElementsAre("layer", "layer_type", "part", "phase", "rows", "step", "stream"));
  EXPECT_THAT(keys.at("prefill 24"), testing::ElementsAre("part", "phase", "sequences", "step", "tokens"));
}

TEST(ChromeTrace, TheCriticalPathOfEachCoordinatorIsALane) {
  std::vector<Capture> runs{make_made_capture({.world_size = 4, .slow_rank = 3, .slow_factor = 5}), make_made_capture()};
  const ReportInput input(merge_captures(std::move(runs)));
  const json trace = json::parse(written(input));
  std::map<std::string, Place> lanes;
  for (const json& event : events_of(trace, "M")) {
    if (event.at("name") == "thread_name") lanes.emplace(event.at("args").at("name"), place_of(event));
  }
  const Place first = lanes.at("critical path"), second = lanes.at("critical path of rank 4");
  int64_t first_ns = 0, second_ns = 0, steps_ns = 0;
  std::map<Place, int64_t> end_ns;
  std::map<int64_t, int64_t> experts_ns;  // by rank
  for (const json& event : events_of(trace, "X")) {
    if (event.at("cat") == "step") steps_ns += ns(event.at("dur"));
    const Place place = place_of(event);
    if (place != first && place != second) continue;
    (place == first ? first_ns : second_ns) += ns(event.at("dur"));
    EXPECT_GE(ns(event.at("ts")), end_ns[place]) << event;
    end_ns[place] = ns(event.at("ts")) + ns(event.at("dur"));
    EXPECT_EQ(event.at("cat"), "critical path") << event;
    EXPECT_TRUE(event.at("name").get<std::string>().starts_with("path: ")) << event;
    if (event.at("name") == "path: GroupedMatmulSwiglu") experts_ns[event.at("args").at("rank")] += ns(event.at("dur"));
  }
  EXPECT_EQ(first_ns + second_ns, steps_ns);
  EXPECT_GT(second_ns, 0);
  EXPECT_GT(experts_ns[3], 3 * (experts_ns[1] + experts_ns[2])) << "the slow rank, where it has any rows";
  EXPECT_GT(experts_ns[5] + experts_ns[6], 0);
}

TEST(ChromeTrace, StepsThatOverlapLeaveTheCriticalPathInOrder) {
  test::SmallCapture small(1, 10'000);
  small.step(0, Phase::kDecode, 0, 5000, 1, 1).step(1, Phase::kDecode, 3000, 8000, 1, 1);
  small.span(0, Zone::kAdd, 3500, 4500, 1, 0, {1, 0});
  const ReportInput input(small.capture);
  const Outline outline(input);
  int64_t end_ns = 0;
  for (const OutlineSlice& slice : outline.overview().at(1).slices) {
    EXPECT_GE(slice.begin_ns, end_ns);
    EXPECT_GT(slice.end_ns, slice.begin_ns);
    end_ns = slice.end_ns;
  }
  EXPECT_EQ(end_ns, 8000);
}

TEST(ChromeTrace, NoBraceGetsIntoAString) {
  Capture capture = make_made_capture({});
  capture.ranks[0].host = "a{b}\"c\n";
  capture.ranks[1].threads[0].name = "}{";
  for (std::string& type : capture.info.model.layer_types) type = "{\"" + type;
  const std::string text = written(ReportInput(std::move(capture)));
  const json trace = json::parse(text);
  bool is_in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
      continue;
    }
    if (text[i] == '"') is_in_string = !is_in_string;
    ASSERT_FALSE(is_in_string && (text[i] == '{' || text[i] == '}')) << text.substr(i > 40 ? i - 40 : 0, 60);
  }
  EXPECT_EQ(events_of(trace, "M").at(0).at("args").at("name"), "rank 0 coordinator (a(b)\"c\n)");
}

TEST(ChromeTrace, FailingStreamIsAnError) {
  const ReportInput input(make_made_capture({}));
  std::ostringstream out;
  out.setstate(std::ios::badbit);
  test::expect_error([&] { write_chrome_trace(input, out); }, ErrorCode::kUnavailable, {"Chrome"});
}

}  // namespace
}  // namespace ferry

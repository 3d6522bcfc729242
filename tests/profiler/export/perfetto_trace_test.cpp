#include "profiler/export/perfetto_trace.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "profiler/export/outline.h"
#include "profiler/export/perfetto.pb.h"
#include "profiler/export/trace_facts.h"
#include "profiler/report/timeline/step_slices.h"
#include "tests/support/drawn_flows.h"
#include "tests/support/expect_error.h"
#include "tests/support/made_capture.h"
#include "tests/support/small_capture.h"

namespace ferry {
namespace {

namespace pb = perfetto::protos;

pb::Trace written_trace(const ReportInput& input) {
  std::ostringstream out;
  write_perfetto_trace(input, out);
  pb::Trace trace;
  EXPECT_TRUE(trace.ParseFromString(out.str()));
  return trace;
}

/// A slice as a reader puts it together.
struct ReadSlice {
  std::string name, category;
  uint64_t track = 0, begin = 0, end = 0;
  std::size_t depth = 0;
  std::map<std::string, std::string> args;
  std::vector<uint64_t> flows, last_flows;
};

/// What a reader remembers of a sequence of packets.
struct SequenceState {
  bool is_valid = false;
  uint64_t track = 0;
  std::map<uint64_t, std::string> names, categories, arg_names, texts;
};

/// Reads a trace as Perfetto's own importer does, and fails the test wherever that would drop something.
class TraceReader {
 public:
  explicit TraceReader(const pb::Trace& trace) {
    for (const pb::TracePacket& packet : trace.packet()) read(packet);
    for (const auto& [track, open] : open_) EXPECT_TRUE(open.empty()) << "track " << track;
  }

  std::map<uint64_t, pb::TrackDescriptor> tracks;
  std::vector<ReadSlice> slices;
  std::vector<std::string> instants;
  std::map<uint64_t, std::vector<std::pair<uint64_t, int64_t>>> samples;  // by track: (time, value)
  int num_losses = 0;

 private:
  void read(const pb::TracePacket& packet) {
    ASSERT_TRUE(packet.has_trusted_packet_sequence_id());
    SequenceState& state = sequences_[packet.trusted_packet_sequence_id()];
    EXPECT_EQ(packet.first_packet_on_sequence(), seen_.insert(packet.trusted_packet_sequence_id()).second);
    if (packet.previous_packet_dropped() != 0) {
      state = {};
      ++num_losses;
    }
    if ((packet.sequence_flags() & pb::TracePacket::SEQ_INCREMENTAL_STATE_CLEARED) != 0) {
      state = {};
      state.is_valid = true;
      EXPECT_EQ(packet.trace_packet_defaults().timestamp_clock_id(), pb::BUILTIN_CLOCK_MONOTONIC);
      state.track = packet.trace_packet_defaults().track_event_defaults().track_uuid();
    }
    EXPECT_TRUE(state.is_valid);
    learn(packet.interned_data(), state);
    if (packet.has_track_descriptor()) {
      EXPECT_TRUE(tracks.emplace(packet.track_descriptor().uuid(), packet.track_descriptor()).second);
    }
    if (packet.has_track_event()) read_event(packet, state);
  }

  static void learn(const pb::InternedData& data, SequenceState& state) {
    for (const auto& entry : data.event_names()) EXPECT_TRUE(state.names.emplace(entry.iid(), entry.name()).second);
    for (const auto& entry : data.event_categories()) EXPECT_TRUE(state.categories.emplace(entry.iid(), entry.name()).second);
    for (const auto& entry : data.debug_annotation_names()) {
      EXPECT_TRUE(state.arg_names.emplace(entry.iid(), entry.name()).second);
    }
    for (const auto& entry : data.debug_annotation_string_values()) {
      EXPECT_TRUE(state.texts.emplace(entry.iid(), entry.str()).second);
    }
  }

  void read_event(const pb::TracePacket& packet, const SequenceState& state) {
    const pb::TrackEvent& event = packet.track_event();
    const uint64_t track = event.has_track_uuid() ? event.track_uuid() : state.track;
    EXPECT_EQ(tracks.count(track), 1U) << "an event before its track";
    std::vector<std::size_t>& open = open_[track];
    switch (event.type()) {
      case pb::TrackEvent::TYPE_SLICE_BEGIN: {
        ReadSlice slice{.name = state.names.at(event.name_iid()),
                        .category = state.categories.at(event.category_iids(0)),
                        .track = track,
                        .begin = packet.timestamp(),
                        .depth = open.size()};
        for (const pb::DebugAnnotation& arg : event.debug_annotations()) {
          slice.args[state.arg_names.at(arg.name_iid())] =
              arg.has_string_value_iid() ? state.texts.at(arg.string_value_iid()) : std::to_string(arg.int_value());
        }
        slice.flows.assign(event.flow_ids().begin(), event.flow_ids().end());
        slice.last_flows.assign(event.terminating_flow_ids().begin(), event.terminating_flow_ids().end());
        open.push_back(slices.size());
        slices.push_back(std::move(slice));
        break;
      }
      case pb::TrackEvent::TYPE_SLICE_END:
        ASSERT_FALSE(open.empty()) << "an end without a begin";
        slices[open.back()].end = packet.timestamp();
        open.pop_back();
        break;
      case pb::TrackEvent::TYPE_COUNTER: samples[track].emplace_back(packet.timestamp(), event.counter_value()); break;
      case pb::TrackEvent::TYPE_INSTANT: instants.push_back(state.names.at(event.name_iid())); break;
      default: FAIL() << "event type " << event.type();
    }
    EXPECT_GE(packet.timestamp(), last_time_[track]) << "time goes back on track " << track;
    last_time_[track] = packet.timestamp();
  }

  std::map<uint32_t, SequenceState> sequences_;
  std::set<uint32_t> seen_;
  std::map<uint64_t, std::vector<std::size_t>> open_;  // by track: indices of open slices
  std::map<uint64_t, uint64_t> last_time_;
};

/// Those that were recorded: the outline and the overview are left out.
std::vector<ReadSlice> recorded(const TraceReader& reader) {
  std::vector<ReadSlice> slices;
  for (const ReadSlice& slice : reader.slices) {
    if (slice.category != "outline" && slice.category != "overview" && slice.category != "critical path")
      slices.push_back(slice);
  }
  return slices;
}

TEST(PerfettoTrace, HoldsEverySliceOfTheTimelineOnce) {
  const ReportInput input(make_made_capture({.world_size = 3, .num_layers = 3}));
  const Outline outline(input);
  const TraceReader reader(written_trace(input));
  ASSERT_EQ(recorded(reader).size(), input.timeline.slices.size());
  std::multiset<std::tuple<std::string, int64_t, int64_t>> expected, got;
  for (const Slice& slice : input.timeline.slices) {
    expected.insert({std::string(outline.slice_name(slice)), slice.begin_ns + kTraceStartNs, slice.end_ns + kTraceStartNs});
  }
  for (const ReadSlice& slice : recorded(reader)) {
    got.insert({slice.name, static_cast<int64_t>(slice.begin), static_cast<int64_t>(slice.end)});
  }
  EXPECT_EQ(got, expected);
}

TEST(PerfettoTrace, SlicesOfATrackAreDisjointOrNested) {
  const TraceReader reader(written_trace(ReportInput(make_made_capture({.world_size = 4, .slow_rank = 2, .slow_factor = 3}))));
  std::map<uint64_t, std::vector<ReadSlice>> by_track;
  for (const ReadSlice& slice : reader.slices) by_track[slice.track].push_back(slice);
  std::size_t deepest = 0;
  for (const auto& [track, slices] : by_track) {
    std::vector<ReadSlice> around;
    for (const ReadSlice& slice : slices) {
      ASSERT_LE(slice.begin, slice.end);
      around.resize(slice.depth);
      if (!around.empty()) {
        EXPECT_LE(around.back().begin, slice.begin);
        EXPECT_GE(around.back().end, slice.end) << slice.name << " in " << around.back().name;
      }
      deepest = std::max(deepest, slice.depth);
      around.push_back(slice);
    }
  }
  EXPECT_GE(deepest, 3U);  // step, layer, part, operator
}

TEST(PerfettoTrace, ProcessIsTheRankAndEveryLaneHasATrack) {
  const ReportInput input(make_made_capture({.world_size = 3, .clock_bound_ns = 4200}));
  const TraceReader reader(written_trace(input));
  std::map<int32_t, pb::TrackDescriptor> processes;
  std::set<std::pair<int32_t, std::string>> threads;
  std::multiset<std::string> others;
  for (const auto& [uuid, track] : reader.tracks) {
    if (track.has_process()) processes[track.process().pid()] = track;
    if (track.has_thread()) threads.insert({track.thread().pid(), track.thread().thread_name()});
    if (track.has_parent_uuid()) {
      EXPECT_EQ(reader.tracks.count(track.parent_uuid()), 1U);
    }
    if (track.has_parent_uuid() && !track.has_counter() && track.name() != "counters") {
      others.insert(track.name());
      EXPECT_EQ(track.sibling_merge_behavior(), pb::TrackDescriptor::SIBLING_MERGE_BEHAVIOR_NONE);
    }
  }
  ASSERT_EQ(processes.size(), 3U);
  EXPECT_EQ(processes[0].process().process_name(), "rank 0 coordinator (alpha)");
  EXPECT_EQ(processes[2].process().process_name(), "rank 2 worker (beta)");
  EXPECT_THAT(processes[2].process().process_labels(), testing::ElementsAre("host beta", "process 4002", "clock within 5 us"));
  EXPECT_THAT(processes[0].process().process_labels(), testing::ElementsAre("host alpha", "process 4000"));
  EXPECT_THAT(threads, testing::ElementsAre(std::pair(0, "engine"), std::pair(1, "experts"), std::pair(2, "experts")));
  std::size_t num_others = 0;
  for (const Lane& lane : input.timeline.lanes) num_others += lane.kind == Lane::Kind::kThread ? 0 : 1;
  EXPECT_EQ(others.size(), num_others + 2 + 3);  // the overview: phase, critical path and the ranks
  EXPECT_TRUE(others.contains("to rank 2"));
}

TEST(PerfettoTrace, ADeviceHasATrackOfItsOwn) {
  const TraceReader reader(written_trace(ReportInput(test::device_capture().capture)));
  uint64_t device = 0;
  for (const auto& [uuid, track] : reader.tracks) {
    if (track.name() == "GPU") device = uuid;
  }
  std::vector<std::string> names;
  for (const ReadSlice& slice : recorded(reader)) {
    if (slice.track == device) names.push_back(slice.name + " " + slice.category);
  }
  EXPECT_THAT(names, testing::ElementsAre("Add comp", "MatMul.o_proj comp", "Add comp", "Add comp", "Memcpy comp"));
}

TEST(PerfettoTrace, SlicesSayWhatTheyAre) {
  const TraceReader reader(written_trace(ReportInput(make_made_capture({.num_prefill_steps = 1, .num_decode_steps = 2}))));
  const auto find = [&](const std::string& name, const std::string& phase) -> ReadSlice {
    for (const ReadSlice& slice : reader.slices) {
      if (slice.name == name && slice.args.count("phase") != 0 && slice.args.at("phase") == phase) return slice;
    }
    ADD_FAILURE() << "no " << phase << " slice " << name;
    return {};
  };
  using testing::Pair;
  using testing::UnorderedElementsAre;
  const ReadSlice step = find("prefill 24", "prefill");
  EXPECT_EQ(step.category, "step");
  EXPECT_THAT(step.args, UnorderedElementsAre(Pair("step", "0"), Pair("phase", "prefill"), Pair("part", "other"),
                                              Pair("tokens", "24"), Pair("sequences", "1")));
  const ReadSlice attention = find("FusedInferAttentionScore", "decode");
  EXPECT_EQ(attention.category, "comp");
  EXPECT_THAT(attention.args, UnorderedElementsAre(Pair("step", "1"), Pair("phase", "decode"), Pair("layer", "1"),
                                                   Pair("layer_type", "full_attention"), Pair("part", "attention"),
                                                   Pair("rows", "1"), Pair("row_keys", "1")));
  const ReadSlice send = find("hcom_alltoallv.dispatch.send", "decode");
  EXPECT_EQ(send.category, "comm");
  EXPECT_EQ(send.args.at("layer_type"), "linear_attention");
  EXPECT_EQ(send.args.count("bytes"), 1U);
  EXPECT_EQ(send.args.count("peer"), 1U);
}

TEST(PerfettoTrace, EveryArrowGoesFromDispatchOverExpertsToCombine) {
  const ReportInput input(make_made_capture({.world_size = 4}));
  ASSERT_GT(input.timeline.flows.size(), 10U);
  const TraceReader reader(written_trace(input));
  std::map<uint64_t, std::vector<ReadSlice>> ends;
  std::map<uint64_t, int> num_last;
  for (const ReadSlice& slice : reader.slices) {
    for (const uint64_t id : slice.flows) ends[id].push_back(slice);
    for (const uint64_t id : slice.last_flows) {
      ends[id].push_back(slice);
      EXPECT_EQ(slice.name, "MoeTokenUnpermute");
      ++num_last[id];
    }
  }
  EXPECT_EQ(ends.size(), test::num_drawn_flows(input.timeline));
  for (auto& [id, slices] : ends) {
    ASSERT_EQ(slices.size(), 3U);
    EXPECT_EQ(num_last[id], 1);
    std::sort(slices.begin(), slices.end(), [](const ReadSlice& x, const ReadSlice& y) { return x.begin < y.begin; });
    EXPECT_EQ(slices[0].name, "MoeDistributeDispatch");
    EXPECT_EQ(slices[1].name, "MoeExperts");
    EXPECT_EQ(slices[2].name, "MoeTokenUnpermute");
    EXPECT_EQ(slices[0].args.at("layer"), slices[2].args.at("layer"));
  }
}

TEST(PerfettoTrace, TheOverviewStandsFirstAndInOrder) {
  const TraceReader reader(written_trace(ReportInput(make_made_capture({.world_size = 4}))));
  std::map<int32_t, std::string> lanes;
  for (const auto& [uuid, track] : reader.tracks) {
    if (!track.has_parent_uuid() || reader.tracks.at(track.parent_uuid()).name() != "overview") continue;
    lanes[track.sibling_order_rank()] = track.name();
    EXPECT_LT(reader.tracks.at(track.parent_uuid()).sibling_order_rank(), 0);
    EXPECT_FALSE(reader.tracks.at(track.parent_uuid()).has_parent_uuid()) << "ranks are folded, the overview is not";
  }
  using testing::Pair;
  EXPECT_THAT(lanes, testing::ElementsAre(Pair(0, "phase"), Pair(1, "critical path"), Pair(2, "rank 0 coordinator"),
                                          Pair(3, "rank 1 worker"), Pair(4, "rank 2 worker"), Pair(5, "rank 3 worker")));
}

TEST(PerfettoTrace, TheCriticalPathSaysWhereItWas) {
  const ReportInput input(make_made_capture({.world_size = 4, .slow_rank = 3, .slow_factor = 5}));
  const TraceReader reader(written_trace(input));
  uint64_t path_ns = 0;
  std::set<std::string> on_slow_rank;
  for (const ReadSlice& slice : reader.slices) {
    if (reader.tracks.at(slice.track).name() != "critical path") continue;
    path_ns += slice.end - slice.begin;
    EXPECT_EQ(slice.depth, 0U);
    EXPECT_EQ(slice.category, "critical path");
    EXPECT_EQ(slice.args.count("kind") + slice.args.count("step"), 2U);
    if (slice.args.at("rank") == "3") on_slow_rank.insert(slice.args.at("kind") + " " + slice.name);
  }
  EXPECT_EQ(path_ns, static_cast<uint64_t>(total_step_ns(input.timeline)));
  EXPECT_THAT(on_slow_rank, testing::IsSupersetOf({"compute path: GroupedMatmulSwiglu", "message path: rows from rank 0"}));
}

TEST(PerfettoTrace, CountersAreThoseOfTheTimeline) {
  const ReportInput input(make_made_capture({.world_size = 3}));
  const TraceReader reader(written_trace(input));
  std::size_t num_samples = 0;
  std::map<std::string, std::size_t> by_name;
  for (const auto& [track, samples] : reader.samples) {
    const pb::TrackDescriptor& descriptor = reader.tracks.at(track);
    EXPECT_TRUE(descriptor.has_counter());
    by_name[descriptor.name()] += samples.size();
    num_samples += samples.size();
  }
  EXPECT_EQ(num_samples, input.timeline.counters.size());
  EXPECT_EQ(by_name["running_requests"], 7U);
  EXPECT_EQ(by_name["waiting_requests"], 7U);
  EXPECT_EQ(by_name["used_kv_blocks"], 7U);
  EXPECT_EQ(by_name["rank_rows of rank 1"], 28U);
  EXPECT_EQ(by_name["rank_rows of rank 2"], 28U);
}

TEST(PerfettoTrace, LossIsSaidAndTheRestStillReads) {
  Capture capture = make_made_capture({});
  capture.ranks[1].threads[0].num_lost = 17;
  const ReportInput input(std::move(capture));
  const TraceReader reader(written_trace(input));
  EXPECT_EQ(reader.num_losses, 1);
  EXPECT_THAT(reader.instants, testing::ElementsAre("spans lost"));
  EXPECT_EQ(recorded(reader).size(), input.timeline.slices.size());
}

TEST(PerfettoTrace, AnEmptyRankIsNoObstacle) {
  Capture capture = make_made_capture({.world_size = 3});
  capture.ranks[2].threads.clear();
  const ReportInput input(std::move(capture));
  const TraceReader reader(written_trace(input));
  EXPECT_EQ(recorded(reader).size(), input.timeline.slices.size());
}

TEST(PerfettoTrace, ClockIsTiedToTheTimeOfDay) {
  const pb::Trace trace = written_trace(ReportInput(make_made_capture({})));
  ASSERT_TRUE(trace.packet(0).has_clock_snapshot());
  const pb::ClockSnapshot& snapshot = trace.packet(0).clock_snapshot();
  EXPECT_EQ(snapshot.primary_trace_clock(), pb::BUILTIN_CLOCK_MONOTONIC);
  ASSERT_EQ(snapshot.clocks_size(), 2);
  EXPECT_EQ(snapshot.clocks(0).timestamp(), static_cast<uint64_t>(kTraceStartNs));
  EXPECT_EQ(snapshot.clocks(1).timestamp(), 1'760'000'000'000'000'000U);
}

TEST(PerfettoTrace, FailingStreamIsAnError) {
  const ReportInput input(make_made_capture({}));
  std::ostringstream out;
  out.setstate(std::ios::badbit);
  test::expect_error([&] { write_perfetto_trace(input, out); }, ErrorCode::kUnavailable, {"Perfetto"});
}

}  // namespace
}  // namespace ferry

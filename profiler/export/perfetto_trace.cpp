#include "profiler/export/perfetto_trace.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/util/delimited_message_util.h>

#include <ostream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "profiler/export/outline.h"
#include "profiler/export/perfetto.pb.h"
#include "profiler/export/trace_facts.h"
#include "profiler/report/views/memory_lines.h"
#include "runtime/base/check.h"
#include "runtime/base/error.h"

// A sequence of packets per lane: on each, names are sent once and then meant by number, and the lane's track is the default.
// Sequence 1 describes the tracks and carries the counters.

namespace ferry {
namespace {

namespace pb = perfetto::protos;

constexpr uint32_t kFirstOfState =
    pb::TracePacket::SEQ_INCREMENTAL_STATE_CLEARED | pb::TracePacket::SEQ_NEEDS_INCREMENTAL_STATE;
constexpr uint32_t kMainSequence = 1;

uint64_t at(int64_t timeline_ns) { return static_cast<uint64_t>(timeline_ns + kTraceStartNs); }

/// Appends packets to the stream. A trace is nothing but its packets one after another, so it is never held as a whole.
class PacketStream {
 public:
  explicit PacketStream(std::ostream& out) : stream_(&out), coded_(&stream_) {}
  PacketStream(const PacketStream&) = delete;
  PacketStream& operator=(const PacketStream&) = delete;

  void write(const pb::TracePacket& packet) {
    constexpr uint32_t kLengthDelimited = 2;
    coded_.WriteTag(pb::Trace::kPacketFieldNumber << 3 | kLengthDelimited);
    google::protobuf::util::SerializeDelimitedToCodedStream(packet, &coded_);
    if (coded_.HadError()) throw Error(ErrorCode::kUnavailable, "the Perfetto trace cannot be written: the stream failed");
  }

 private:
  google::protobuf::io::OstreamOutputStream stream_;
  google::protobuf::io::CodedOutputStream coded_;
};

/// Numbers for strings of one kind on one sequence. Strings must live as long as this.
class Interner {
 public:
  struct Entry {
    uint64_t iid = 0;
    bool is_new = false;
  };
  Entry operator()(std::string_view text) {
    const auto [entry, is_new] = iids_.try_emplace(text, iids_.size() + 1);
    return {entry->second, is_new};
  }
  void clear() { iids_.clear(); }

 private:
  std::unordered_map<std::string_view, uint64_t> iids_;
};

/// One sequence: hands out packets that only have to be given an event.
class Sequence {
 public:
  Sequence(PacketStream& stream, uint32_t id, uint64_t default_track)
      : stream_(stream), id_(id), default_track_(default_track) {}

  /// The next packet, empty but for its time. It is this object's and is valid until the next call.
  pb::TracePacket& start(int64_t timeline_ns) {
    packet_.Clear();
    packet_.set_timestamp(at(timeline_ns));
    packet_.set_trusted_packet_sequence_id(id_);
    packet_.set_sequence_flags(pb::TracePacket::SEQ_NEEDS_INCREMENTAL_STATE);
    if (is_first_of_state_) {
      packet_.set_sequence_flags(kFirstOfState);
      pb::TracePacketDefaults& defaults = *packet_.mutable_trace_packet_defaults();
      defaults.set_timestamp_clock_id(pb::BUILTIN_CLOCK_MONOTONIC);
      if (default_track_ != 0) defaults.mutable_track_event_defaults()->set_track_uuid(default_track_);
    }
    if (is_first_) packet_.set_first_packet_on_sequence(true);
    if (is_after_loss_) packet_.set_previous_packet_dropped(pb::TracePacket::DATA_LOSS_PRESENT);
    is_first_ = is_first_of_state_ = is_after_loss_ = false;
    return packet_;
  }

  /// Says in the next packet that something is missing before it. Names have to be sent anew then.
  void note_loss() {
    is_after_loss_ = is_first_of_state_ = true;
    for (Interner* names : {&event_names_, &categories_, &arg_names_, &arg_texts_}) names->clear();
  }

  void write() { stream_.write(packet_); }

  void set_name(std::string_view name, std::string_view category) {
    const Interner::Entry named = event_names_(name);
    if (named.is_new) add_interned(*packet_.mutable_interned_data()->add_event_names(), named.iid, name);
    packet_.mutable_track_event()->set_name_iid(named.iid);
    const Interner::Entry sorted = categories_(category);
    if (sorted.is_new) add_interned(*packet_.mutable_interned_data()->add_event_categories(), sorted.iid, category);
    packet_.mutable_track_event()->add_category_iids(sorted.iid);
  }

  void add_arg(const TraceArg& arg) {
    pb::DebugAnnotation& annotation = *packet_.mutable_track_event()->add_debug_annotations();
    const Interner::Entry named = arg_names_(arg.name);
    if (named.is_new) add_interned(*packet_.mutable_interned_data()->add_debug_annotation_names(), named.iid, arg.name);
    annotation.set_name_iid(named.iid);
    if (arg.text == nullptr) {
      annotation.set_int_value(arg.value);
      return;
    }
    const Interner::Entry text = arg_texts_(arg.text);
    if (text.is_new) {
      pb::InternedString& interned = *packet_.mutable_interned_data()->add_debug_annotation_string_values();
      interned.set_iid(text.iid);
      interned.set_str(arg.text);
    }
    annotation.set_string_value_iid(text.iid);
  }

 private:
  template <class Interned>
  static void add_interned(Interned& interned, uint64_t iid, std::string_view name) {
    interned.set_iid(iid);
    interned.set_name(std::string(name));
  }

  PacketStream& stream_;
  const uint32_t id_;
  const uint64_t default_track_;  // 0: none
  bool is_first_ = true, is_first_of_state_ = true, is_after_loss_ = false;
  pb::TracePacket packet_;
  Interner event_names_, categories_, arg_names_, arg_texts_;
};

class PerfettoWriter {
 public:
  PerfettoWriter(const ReportInput& input, std::ostream& out)
      : input_(input),
        facts_(input),
        outline_(input),
        stream_(out),
        main_(stream_, kMainSequence, 0),
        arrows_(find_arrow_ends(input.timeline)) {}

  void write() {
    write_clocks();
    describe_root();
    describe_overview();
    for (const RankCapture& rank : input_.capture.ranks) describe_rank(rank);
    for (std::size_t i = 0; i < timeline().lanes.size(); ++i) describe_lane(i);
    for (std::size_t i = 0; i < facts_.counter_rows().size(); ++i) describe_counter(i);
    for (const CounterSample& sample : timeline().counters) write_sample(sample);
    write_memory();
    for (std::size_t i = 0; i < timeline().lanes.size(); ++i) write_lane(i);
    for (std::size_t i = 0; i < outline_.overview().size(); ++i) write_overview_lane(i);
  }

 private:
  const Timeline& timeline() const { return input_.timeline; }

  // Track ids: 0 is the root, then come ranks, a group of counters for each rank, lanes, counters, the overview and its
  // lanes, and kinds of memory.
  static uint64_t rank_track(int32_t rank) { return static_cast<uint64_t>(rank) + 1; }
  uint64_t counter_group_track(int32_t rank) const { return input_.capture.ranks.size() + rank_track(rank); }
  uint64_t lane_track(std::size_t lane) const { return 2 * input_.capture.ranks.size() + lane + 1; }
  uint64_t counter_track(std::size_t row) const { return lane_track(timeline().lanes.size() + row); }
  uint64_t overview_track() const { return counter_track(facts_.counter_rows().size()); }
  uint64_t overview_lane_track(std::size_t lane) const { return overview_track() + 1 + lane; }
  uint64_t first_memory_track() const { return overview_lane_track(outline_.overview().size()); }

  /// Ties the trace's clock to the time of day.
  void write_clocks() {
    pb::ClockSnapshot& snapshot = *main_.start(0).mutable_clock_snapshot();
    snapshot.set_primary_trace_clock(pb::BUILTIN_CLOCK_MONOTONIC);
    pb::ClockSnapshot::Clock& monotonic = *snapshot.add_clocks();
    monotonic.set_clock_id(pb::BUILTIN_CLOCK_MONOTONIC);
    monotonic.set_timestamp(at(0));
    pb::ClockSnapshot::Clock& real = *snapshot.add_clocks();
    real.set_clock_id(pb::BUILTIN_CLOCK_REALTIME);
    real.set_timestamp(static_cast<uint64_t>(input_.capture.info.start_epoch_ns));
    main_.write();
  }

  /// Ranks and threads are to be shown in their own order; old viewers do not know of it.
  void describe_root() {
    pb::TrackDescriptor& track = *main_.start(0).mutable_track_descriptor();
    track.set_uuid(0);
    track.set_process_ordering(pb::TrackDescriptor::PROCESS_ORDERING_EXPLICIT);
    track.set_thread_ordering(pb::TrackDescriptor::THREAD_ORDERING_EXPLICIT);
    main_.write();
  }

  /// Viewers fold ranks and order them as they like; what stands above them is open and in order.
  void describe_overview() {
    pb::TrackDescriptor& group = *main_.start(0).mutable_track_descriptor();
    group.set_uuid(overview_track());
    group.set_name("overview");
    group.set_sibling_order_rank(-1);
    group.set_child_ordering(pb::TrackDescriptor::EXPLICIT);
    main_.write();
    for (std::size_t i = 0; i < outline_.overview().size(); ++i) {
      pb::TrackDescriptor& track = *main_.start(0).mutable_track_descriptor();
      track.set_uuid(overview_lane_track(i));
      track.set_parent_uuid(overview_track());
      track.set_name(outline_.overview()[i].name);
      track.set_sibling_order_rank(static_cast<int32_t>(i));
      track.set_sibling_merge_behavior(pb::TrackDescriptor::SIBLING_MERGE_BEHAVIOR_NONE);
      main_.write();
    }
  }

  void describe_rank(const RankCapture& rank) {
    pb::TrackDescriptor& track = *main_.start(0).mutable_track_descriptor();
    track.set_uuid(rank_track(rank.rank));
    track.set_sibling_order_rank(rank.rank);
    track.mutable_process()->set_pid(rank.rank);
    track.mutable_process()->set_process_name(facts_.rank_title(rank));
    for (const std::string& label : facts_.rank_labels(rank)) track.mutable_process()->add_process_labels(label);
    main_.write();
  }

  void describe_lane(std::size_t lane_idx) {
    const Lane& lane = timeline().lanes[lane_idx];
    pb::TrackDescriptor& track = *main_.start(0).mutable_track_descriptor();
    track.set_uuid(lane_track(lane_idx));
    track.set_sibling_order_rank(static_cast<int32_t>(lane_idx));
    if (lane.kind == Lane::Kind::kThread) {
      track.mutable_thread()->set_pid(lane.rank);
      track.mutable_thread()->set_tid(lane.tid);
      track.mutable_thread()->set_thread_name(lane.name);
    } else {
      track.set_parent_uuid(rank_track(lane.rank));
      track.set_name(lane.name);
      track.set_sibling_merge_behavior(pb::TrackDescriptor::SIBLING_MERGE_BEHAVIOR_NONE);
    }
    main_.write();
  }

  /// Before a rank's first counter, also the group that they are all folded into.
  void describe_counter(std::size_t row_idx) {
    const CounterRow& row = facts_.counter_rows()[row_idx];
    if (row_idx == 0 || facts_.counter_rows()[row_idx - 1].rank != row.rank) {
      pb::TrackDescriptor& group = *main_.start(0).mutable_track_descriptor();
      group.set_uuid(counter_group_track(row.rank));
      group.set_parent_uuid(rank_track(row.rank));
      group.set_name("counters");
      group.set_child_ordering(pb::TrackDescriptor::EXPLICIT);
      main_.write();
    }
    pb::TrackDescriptor& track = *main_.start(0).mutable_track_descriptor();
    track.set_uuid(counter_track(row_idx));
    track.set_parent_uuid(counter_group_track(row.rank));
    track.set_name(row.name);
    track.set_sibling_order_rank(static_cast<int32_t>(row_idx));
    track.mutable_counter()->set_unit(pb::CounterDescriptor::UNIT_COUNT);
    track.mutable_counter()->set_y_axis_share_key(zone_info(row.zone).name);
    main_.write();
  }

  void write_sample(const CounterSample& sample) {
    pb::TrackEvent& event = *main_.start(sample.at_ns).mutable_track_event();
    event.set_type(pb::TrackEvent::TYPE_COUNTER);
    event.set_track_uuid(counter_track(facts_.row_of(sample)));
    event.set_counter_value(sample.value);
    main_.write();
  }

  /// A track for each kind, in a group of each rank.
  void write_memory() {
    uint64_t next_track = first_memory_track();
    for (const RankCapture& rank : input_.capture.ranks) {
      if (rank.memory.samples.empty()) continue;
      pb::TrackDescriptor& group = *main_.start(0).mutable_track_descriptor();
      const uint64_t group_track = next_track++;
      group.set_uuid(group_track);
      group.set_parent_uuid(rank_track(rank.rank));
      group.set_name("memory");
      group.set_child_ordering(pb::TrackDescriptor::EXPLICIT);
      main_.write();
      int32_t order = 0;
      for (const MemoryLine& line : find_memory_stack(rank.memory.samples)) {
        pb::TrackDescriptor& track = *main_.start(0).mutable_track_descriptor();
        track.set_uuid(next_track);
        track.set_parent_uuid(group_track);
        track.set_name(line.name);
        track.set_sibling_order_rank(order++);
        track.mutable_counter()->set_unit(pb::CounterDescriptor::UNIT_SIZE_BYTES);
        track.mutable_counter()->set_y_axis_share_key("memory");
        main_.write();
        for (const MemorySample& sample : rank.memory.samples) {
          if (line.bytes(sample) == kNotKnown) continue;
          pb::TrackEvent& event = *main_.start(timeline().to_ns(rank, sample.ticks)).mutable_track_event();
          event.set_type(pb::TrackEvent::TYPE_COUNTER);
          event.set_track_uuid(next_track);
          event.set_counter_value(line.bytes(sample));
          main_.write();
        }
        ++next_track;
      }
    }
  }

  void write_lane(std::size_t lane_idx) {
    const Lane& lane = timeline().lanes[lane_idx];
    Sequence sequence(stream_, kMainSequence + 1 + static_cast<uint32_t>(lane_idx), lane_track(lane_idx));
    if (const uint64_t num_lost = facts_.num_lost(lane); num_lost > 0) {
      sequence.start(0).mutable_track_event()->set_type(pb::TrackEvent::TYPE_INSTANT);
      sequence.set_name("spans lost", "loss");
      sequence.add_arg({"lost", static_cast<int64_t>(num_lost)});
      sequence.write();
      sequence.note_loss();
    }
    std::vector<int64_t> open_ends;  // of the slices around the next one
    const auto close_until = [&](int64_t now_ns) {
      for (; !open_ends.empty() && open_ends.back() <= now_ns; open_ends.pop_back()) {
        sequence.start(open_ends.back()).mutable_track_event()->set_type(pb::TrackEvent::TYPE_SLICE_END);
        sequence.write();
      }
    };
    for (const DrawnSlice& slice : outline_.draw(static_cast<int32_t>(lane_idx))) {
      close_until(slice.begin_ns);
      FERRY_CHECK(open_ends.empty() || slice.end_ns <= open_ends.back()) << " slice " << slice.slice << " of " << lane.name;
      if (slice.outline == nullptr) {
        write_begin(sequence, slice.slice);
      } else {
        write_begin(sequence, *slice.outline);
      }
      open_ends.push_back(slice.end_ns);
    }
    close_until(INT64_MAX);
  }

  void write_overview_lane(std::size_t lane_idx) {
    const auto id = kMainSequence + 1 + static_cast<uint32_t>(timeline().lanes.size() + lane_idx);
    Sequence sequence(stream_, id, overview_lane_track(lane_idx));
    for (const OutlineSlice& slice : outline_.overview()[lane_idx].slices) {
      write_begin(sequence, slice);
      sequence.start(slice.end_ns).mutable_track_event()->set_type(pb::TrackEvent::TYPE_SLICE_END);
      sequence.write();
    }
  }

  void write_begin(Sequence& sequence, const OutlineSlice& slice) {
    sequence.start(slice.begin_ns).mutable_track_event()->set_type(pb::TrackEvent::TYPE_SLICE_BEGIN);
    sequence.set_name(slice.name, slice.category());
    fill_args(slice, args_);
    for (const TraceArg& arg : args_) sequence.add_arg(arg);
    sequence.write();
  }

  void write_begin(Sequence& sequence, int32_t slice_idx) {
    const Slice& slice = timeline().slices[static_cast<std::size_t>(slice_idx)];
    pb::TrackEvent& event = *sequence.start(slice.begin_ns).mutable_track_event();
    event.set_type(pb::TrackEvent::TYPE_SLICE_BEGIN);
    sequence.set_name(outline_.slice_name(slice), category_name(kind_of(slice)));
    facts_.fill_args(slice, args_);
    for (const TraceArg& arg : args_) sequence.add_arg(arg);
    for (const ArrowEnd& arrow : arrow_ends_of(arrows_, slice_idx)) {
      if (arrow.role == ArrowEnd::Role::kEnd) {
        event.add_terminating_flow_ids(arrow.id);
      } else {
        event.add_flow_ids(arrow.id);
      }
    }
    sequence.write();
  }

  const ReportInput& input_;
  const TraceFacts facts_;
  const Outline outline_;
  PacketStream stream_;
  Sequence main_;
  const std::vector<ArrowEnd> arrows_;
  std::vector<TraceArg> args_;
};

}  // namespace

void write_perfetto_trace(const ReportInput& input, std::ostream& out) {
  PerfettoWriter(input, out).write();
  out.flush();
  if (!out) throw Error(ErrorCode::kUnavailable, "the Perfetto trace cannot be written: the stream failed");
}

}  // namespace ferry

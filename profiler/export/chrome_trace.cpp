#include "profiler/export/chrome_trace.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "profiler/export/outline.h"
#include "profiler/export/trace_facts.h"
#include "profiler/report/views/memory_lines.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

// Lanes that are no threads get ids above every thread's: Linux numbers threads below 2^22.
constexpr int64_t kFirstLaneTid = int64_t{1} << 22;
constexpr const char* kArrowName = "moe";

int64_t tid_of(const Lane& lane) { return lane.kind == Lane::Kind::kThread ? lane.tid : kFirstLaneTid + lane.tid; }

/// Of an overview lane; lanes of a rank have numbers from 1000 on.
int64_t overview_tid(std::size_t lane_idx) { return kFirstLaneTid + static_cast<int64_t>(lane_idx); }

/// A quoted JSON string. Braces become parentheses: MindStudio Insight counts them without regard to strings.
std::string quoted(std::string text) {
  for (char& c : text) {
    if (c == '{') c = '(';
    if (c == '}') c = ')';
  }
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

/// Composes one event's line after another and hands it to the stream.
class EventLines {
 public:
  explicit EventLines(std::ostream& out) : out_(out) {}

  EventLines& operator<<(std::string_view text) {
    line_ += text;
    return *this;
  }
  EventLines& operator<<(int64_t number) {
    char digits[24];
    line_.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
    return *this;
  }

  /// Nanoseconds as microseconds with exactly three decimals. Not negative.
  EventLines& microseconds(int64_t ns) {
    const int64_t below = ns % 1000;
    *this << ns / 1000 << (below < 10 ? ".00" : below < 100 ? ".0" : ".") << below;
    return *this;
  }

  /// Ends an event.
  void end() {
    out_ << (is_first_ ? "\n" : ",\n") << line_;
    if (!out_) throw Error(ErrorCode::kUnavailable, "the Chrome trace cannot be written: the stream failed");
    line_.clear();
    is_first_ = false;
  }

 private:
  std::ostream& out_;
  std::string line_;
  bool is_first_ = true;
};

class ChromeWriter {
 public:
  ChromeWriter(const ReportInput& input, std::ostream& out)
      : input_(input), out_(out), facts_(input), outline_(input), lines_(out), arrows_(find_arrow_ends(input.timeline)) {}

  void write() {
    write_header();
    for (const RankCapture& rank : input_.capture.ranks) describe_rank(rank);
    for (std::size_t i = 0; i < timeline().lanes.size(); ++i) describe_lane(i);
    for (std::size_t i = 0; i < outline_.overview().size(); ++i) describe_overview_lane(i);
    for (const CounterSample& sample : timeline().counters) write_sample(sample);
    for (const RankCapture& rank : input_.capture.ranks) write_memory(rank);
    for (std::size_t i = 0; i < timeline().lanes.size(); ++i) write_lane(static_cast<int32_t>(i));
    for (std::size_t i = 0; i < outline_.overview().size(); ++i) write_overview_lane(i);
    out_ << "\n]}\n";
  }

 private:
  const Timeline& timeline() const { return input_.timeline; }

  void write_header() {
    const CaptureInfo& info = input_.capture.info;
    out_ << R"({"schemaVersion": 1, "displayTimeUnit": "ns", "baseTimeNanoseconds": )" << info.start_epoch_ns - kTraceStartNs
         << R"(, "distributedInfo": {"backend": )" << quoted(info.transport) << R"(, "rank": 0, "world_size": )"
         << info.world_size << R"(}, "traceEvents": [)";
  }

  /// A metadata event of a rank (tid 0) or of one of its lanes, up to its value.
  EventLines& start_metadata(std::string_view name, int32_t rank, int64_t tid, std::string_view key) {
    return lines_ << R"({"ph":"M","name":")" << name << R"(","pid":)" << rank << R"(,"tid":)" << tid << R"(,"args":{")" << key
                  << R"(":)";
  }

  void describe_rank(const RankCapture& rank) {
    std::string labels;
    for (const std::string& label : facts_.rank_labels(rank)) labels += (labels.empty() ? "" : ", ") + label;
    (start_metadata("process_name", rank.rank, 0, "name") << quoted(facts_.rank_title(rank)) << "}}").end();
    (start_metadata("process_labels", rank.rank, 0, "labels") << quoted(labels) << "}}").end();
    (start_metadata("process_sort_index", rank.rank, 0, "sort_index") << int64_t{rank.rank} << "}}").end();
  }

  void describe_lane(std::size_t lane_idx) {
    const Lane& lane = timeline().lanes[lane_idx];
    std::string name = lane.name;
    if (const uint64_t num_lost = facts_.num_lost(lane); num_lost > 0) name += " (" + std::to_string(num_lost) + " spans lost)";
    (start_metadata("thread_name", lane.rank, tid_of(lane), "name") << quoted(name) << "}}").end();
    (start_metadata("thread_sort_index", lane.rank, tid_of(lane), "sort_index") << static_cast<int64_t>(lane_idx) << "}}")
        .end();
  }

  /// Above the rank's other lanes.
  void describe_overview_lane(std::size_t lane_idx) {
    const Outline::OverviewLane& lane = outline_.overview()[lane_idx];
    (start_metadata("thread_name", lane.rank, overview_tid(lane_idx), "name") << quoted(lane.name) << "}}").end();
    (start_metadata("thread_sort_index", lane.rank, overview_tid(lane_idx), "sort_index")
     << static_cast<int64_t>(lane_idx) - static_cast<int64_t>(outline_.overview().size()) << "}}")
        .end();
  }

  void write_overview_lane(std::size_t lane_idx) {
    const Outline::OverviewLane& lane = outline_.overview()[lane_idx];
    for (const OutlineSlice& slice : lane.slices) write_outline(slice, lane.rank, overview_tid(lane_idx));
  }

  void write_lane(int32_t lane_idx) {
    const Lane& lane = timeline().lanes[static_cast<std::size_t>(lane_idx)];
    for (const DrawnSlice& slice : outline_.draw(lane_idx)) {
      if (slice.outline == nullptr) {
        write_slice(slice.slice);
      } else {
        write_outline(*slice.outline, lane.rank, tid_of(lane));
      }
    }
  }

  void write_outline(const OutlineSlice& slice, int32_t rank, int64_t tid) {
    start_slice(slice.name, slice.category(), rank, tid, slice.begin_ns, slice.end_ns);
    fill_args(slice, args_);
    write_args();
    lines_ << "}}";
    lines_.end();
  }

  void write_args() {
    std::string_view separator;
    for (const TraceArg& arg : args_) {
      lines_ << separator << R"(")" << arg.name << R"(":)";
      separator = ",";
      if (arg.text == nullptr) {
        lines_ << arg.value;
      } else {
        lines_ << quoted_once(arg.text);
      }
    }
  }

  /// An event up to its arguments.
  EventLines& start_slice(std::string_view name, std::string_view category, int32_t rank, int64_t tid, int64_t begin_ns,
                          int64_t end_ns) {
    lines_ << R"({"ph":"X","name":")" << name << R"(","cat":")" << category << R"(","pid":)" << rank << R"(,"tid":)" << tid
           << R"(,"ts":)";
    lines_.microseconds(begin_ns + kTraceStartNs) << R"(,"dur":)";
    return lines_.microseconds(end_ns - begin_ns) << R"(,"args":{)";
  }

  void write_sample(const CounterSample& sample) {
    lines_ << R"({"ph":"C","name":")" << facts_.counter_rows()[facts_.row_of(sample)].name << R"(","pid":)" << sample.rank
           << R"(,"tid":0,"ts":)";
    lines_.microseconds(sample.at_ns + kTraceStartNs) << R"(,"args":{"value":)" << sample.value << "}}";
    lines_.end();
  }

  /// One counter with a series for each kind: viewers stack them up to the resident set.
  void write_memory(const RankCapture& rank) {
    const std::vector<MemoryLine> lines = find_memory_stack(rank.memory.samples);
    for (const MemorySample& sample : rank.memory.samples) {
      lines_ << R"({"ph":"C","name":"memory_bytes","pid":)" << rank.rank << R"(,"tid":0,"ts":)";
      lines_.microseconds(timeline().to_ns(rank, sample.ticks) + kTraceStartNs) << R"(,"args":{)";
      std::string_view separator;
      for (const MemoryLine& line : lines) {
        lines_ << separator << R"(")" << line.name << R"(":)" << std::max<int64_t>(line.bytes(sample), 0);
        separator = ",";
      }
      lines_ << "}}";
      lines_.end();
    }
  }

  /// The slice, then the arrows that begin or end in it: an arrow's end binds to the last slice that was opened before it.
  void write_slice(int32_t slice_idx) {
    const Slice& slice = timeline().slices[static_cast<std::size_t>(slice_idx)];
    const Lane& lane = timeline().lanes[static_cast<std::size_t>(slice.lane)];
    const ZoneInfo& info = zone_info(slice.zone);
    start_slice(outline_.slice_name(slice), category_name(kind_of(slice)), lane.rank, tid_of(lane), slice.begin_ns,
                slice.end_ns);
    facts_.fill_args(slice, args_);
    write_args();
    // HolisticTraceAnalysis counts what has a stream, as kernels have.
    if (kind_of(slice) == ZoneKind::kCompute || info.kind == ZoneKind::kTransfer) lines_ << R"(,"stream":)" << tid_of(lane);
    lines_ << "}}";
    lines_.end();
    for (const ArrowEnd& arrow : arrow_ends_of(arrows_, slice_idx)) write_arrow_end(arrow, slice, lane);
  }

  void write_arrow_end(const ArrowEnd& arrow, const Slice& slice, const Lane& lane) {
    const char* const phase = arrow.role == ArrowEnd::Role::kStart ? "s" : arrow.role == ArrowEnd::Role::kStep ? "t" : "f";
    lines_ << R"({"ph":")" << phase << R"(","name":")" << kArrowName << R"(","cat":")" << kArrowName << R"(","id":)"
           << static_cast<int64_t>(arrow.id) << R"(,"pid":)" << lane.rank << R"(,"tid":)" << tid_of(lane) << R"(,"ts":)";
    lines_.microseconds(slice.begin_ns + kTraceStartNs);
    if (arrow.role == ArrowEnd::Role::kEnd) lines_ << R"(,"bp":"e")";
    lines_ << "}";
    lines_.end();
  }

  /// `text` must live as long as this.
  const std::string& quoted_once(const char* text) {
    std::string& result = quoted_texts_[text];
    if (result.empty()) result = quoted(text);
    return result;
  }

  const ReportInput& input_;
  std::ostream& out_;
  const TraceFacts facts_;
  const Outline outline_;
  EventLines lines_;
  const std::vector<ArrowEnd> arrows_;
  std::vector<TraceArg> args_;
  std::unordered_map<const char*, std::string> quoted_texts_;  // by address: they are few and shared by all slices
};

}  // namespace

void write_chrome_trace(const ReportInput& input, std::ostream& out) {
  ChromeWriter(input, out).write();
  out.flush();
  if (!out) throw Error(ErrorCode::kUnavailable, "the Chrome trace cannot be written: the stream failed");
}

}  // namespace ferry

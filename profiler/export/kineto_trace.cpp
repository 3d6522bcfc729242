#include "profiler/export/kineto_trace.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "profiler/export/busy_pieces.h"
#include "profiler/export/shown_end.h"
#include "profiler/export/text_file.h"
#include "profiler/export/trace_facts.h"
#include "profiler/operator_facts.h"
#include "profiler/report/timeline/step_slices.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

constexpr int64_t kDevicePid = 0;  // as Kineto numbers devices: their kernels are events of a process of that number
constexpr double kMostCounted = 9e18;

/// A JSON list of a tensor list's shapes or types.
std::string shapes_text(const std::vector<TensorFacts>& tensors, const SpanCounts& counts) {
  std::string text = "[";
  for (const TensorFacts& tensor : tensors) {
    text += text.size() > 1 ? ",[" : "[";
    for (std::size_t d = 0; d < tensor.dims.size(); ++d) text += (d > 0 ? "," : "") + std::to_string(tensor.dims[d].of(counts));
    text += "]";
  }
  return text + "]";
}

std::string types_text(const std::vector<TensorFacts>& tensors) {
  std::string text = "[";
  for (const TensorFacts& tensor : tensors) text += (text.size() > 1 ? "," : "") + quoted_json(tensor.type);
  return text + "]";
}

/// One rank's trace. An operator is there three times, tied by a number: as what the framework called, as its launches
/// (which take no time), and as what ran (kernels). Messages are kernels of NCCL by name, on streams of their own.
class KinetoWriter {
 public:
  KinetoWriter(const ReportInput& input, const TraceFacts& facts, const RankCapture& rank, const std::filesystem::path& path)
      : input_(input), facts_(facts), rank_(rank), steps_(input.timeline), out_(path), pid_(std::max<int64_t>(rank.pid, 1)) {
    const int32_t lane = find_main_lane(input.timeline, rank.rank);
    if (lane >= 0 && input.timeline.lanes[static_cast<std::size_t>(lane)].kind == Lane::Kind::kThread)
      main_tid_ = input.timeline.lanes[static_cast<std::size_t>(lane)].tid;
  }

  void write() {
    write_header();
    describe(pid_, "python", "CPU", 0);
    describe(kDevicePid, facts_.rank_title(rank_), "GPU 0", 1);
    int64_t stream = 0;
    for (std::size_t l = 0; l < input_.timeline.lanes.size(); ++l) {
      const Lane& lane = input_.timeline.lanes[l];
      if (lane.rank != rank_.rank || lane.kind == Lane::Kind::kRequest) continue;
      ++stream;  // from 1: readers take 0 for none
      describe_thread(kDevicePid, stream, lane.name, stream);
      if (lane.kind == Lane::Kind::kTransfer) {
        write_messages(static_cast<int32_t>(l), stream);
        continue;
      }
      if (lane.kind == Lane::Kind::kThread) {
        describe_thread(pid_, lane.tid, lane.name, stream);
      }
      write_lane(static_cast<int32_t>(l), stream);
    }
    write_steps();
    out_ << "\n]}\n";
    out_.close();
  }

 private:
  const Slice& slice_at(int32_t slice) const { return input_.timeline.slices[static_cast<std::size_t>(slice)]; }

  void write_header() {
    const CaptureInfo& info = input_.capture.info;
    out_ << R"({"schemaVersion": 1, "deviceProperties": [], "displayTimeUnit": "ms", "baseTimeNanoseconds": )"
         << info.start_epoch_ns - kTraceStartNs << R"(, "distributedInfo": {"backend": "nccl", "transport": )"
         << quoted_json(info.transport) << R"(, "rank": )" << int64_t{rank_.rank} << R"(, "world_size": )"
         << int64_t{info.world_size} << R"(}, "traceEvents": [)";
  }

  TextFile& start_event() {
    out_ << (is_first_ ? "\n" : ",\n");
    is_first_ = false;
    return out_;
  }

  void describe(int64_t pid, std::string_view name, std::string_view labels, int64_t sort_index) {
    start_event() << R"({"ph":"M","name":"process_name","pid":)" << pid << R"(,"tid":0,"ts":0,"args":{"name":)"
                  << quoted_json(name) << "}}";
    start_event() << R"({"ph":"M","name":"process_labels","pid":)" << pid << R"(,"tid":0,"ts":0,"args":{"labels":)"
                  << quoted_json(labels) << "}}";
    start_event() << R"({"ph":"M","name":"process_sort_index","pid":)" << pid << R"(,"tid":0,"ts":0,"args":{"sort_index":)"
                  << sort_index << "}}";
  }

  void describe_thread(int64_t pid, int64_t tid, std::string_view name, int64_t sort_index) {
    start_event() << R"({"ph":"M","name":"thread_name","pid":)" << pid << R"(,"tid":)" << tid << R"(,"ts":0,"args":{"name":)"
                  << quoted_json(name) << "}}";
    start_event() << R"({"ph":"M","name":"thread_sort_index","pid":)" << pid << R"(,"tid":)" << tid
                  << R"(,"ts":0,"args":{"sort_index":)" << sort_index << "}}";
  }

  /// An event up to its arguments, which end_slice() closes. `name` needs no quoting.
  TextFile& start_slice(std::string_view name, std::string_view category, int64_t pid, int64_t tid, Interval when) {
    start_event() << R"({"ph":"X","cat":")" << category << R"(","name":")" << name << R"(","pid":)" << pid << R"(,"tid":)"
                  << tid << R"(,"ts":)";
    out_.scaled(when.begin + kTraceStartNs, 3) << R"(,"dur":)";
    return out_.scaled(when.end - when.begin, 3) << R"(,"args":{)";
  }
  void end_slice() { out_ << "}}"; }

  void write_place(const Slice& slice) {
    facts_.fill_args(slice, args_);
    for (const TraceArg& arg : args_) {
      out_ << ",\"" << arg.name << "\":";
      if (arg.text == nullptr) {
        out_ << arg.value;
      } else {
        out_ << quoted_json(arg.text);
      }
    }
  }

  void write_steps() {
    for (const StepInfo& step : input_.timeline.steps) {
      start_slice("ProfilerStep#" + std::to_string(step.step), "user_annotation", pid_, main_tid_, {step.begin_ns, step.end_ns})
          << R"("phase":")" << phase_name(step.phase) << R"(","tokens":)" << step.num_tokens << R"(,"sequences":)"
          << step.num_sequences;
      end_slice();
    }
  }

  void write_messages(int32_t lane, int64_t stream) {
    const auto [first, last] = input_.timeline.lane_range(lane);
    for (int32_t i = first; i < last; ++i) {
      const Slice& slice = slice_at(i);
      const int64_t launch = write_launch(main_tid_, 0, slice.begin_ns);
      start_slice("ncclDevKernel_SendRecv(" + std::string(zone_info(slice.zone).name) + ")", "kernel", kDevicePid, stream,
                  {slice.begin_ns, slice.end_ns})
          << R"("device":0,"stream":)" << stream << R"(,"correlation":)" << launch << R"(,"Collective name":"all_to_allv")";
      write_place(slice);
      end_slice();
      write_arrow_end(kDevicePid, stream, slice.begin_ns, launch);
    }
  }

  /// Calls of a thread (a device's lane has none), then what ran.
  void write_lane(int32_t lane_idx, int64_t stream) {
    const Lane& lane = input_.timeline.lanes[static_cast<std::size_t>(lane_idx)];
    const bool is_thread = lane.kind == Lane::Kind::kThread;
    const auto [first, last] = input_.timeline.lane_range(lane_idx);
    const int64_t first_id = num_ids_ - first + 1;
    num_ids_ += last - first;
    for (int32_t i = first; i < last && is_thread; ++i) {
      const Slice& slice = slice_at(i);
      if (slice.zone != Zone::kStep)
        write_call(slice, {slice.begin_ns, shown_end_ns(input_.timeline, i, last)}, lane.tid, first_id + i);
    }
    for (const BusyPiece& piece : find_busy_pieces(input_.timeline, lane_idx)) {
      const Slice& slice = slice_at(piece.slice);
      const int64_t external_id = first_id + piece.slice;
      const int64_t launch = write_launch(is_thread ? lane.tid : main_tid_, is_thread ? external_id : 0, piece.begin_ns);
      start_slice(zone_info(slice.zone).name, "kernel", kDevicePid, stream, {piece.begin_ns, piece.end_ns})
          << R"("device":0,"stream":)" << stream << R"(,"External id":)" << external_id << R"(,"correlation":)" << launch;
      write_place(slice);
      end_slice();
      write_arrow_end(kDevicePid, stream, piece.begin_ns, launch);
    }
  }

  /// What a kernel came from: readers multiply kernels without a launch by calls without one. An operator that was interrupted
  /// is several kernels, each with its own. Returns the launch's number.
  int64_t write_launch(int64_t tid, int64_t external_id, int64_t at_ns) {
    const int64_t launch = ++num_launches_;
    start_slice("cudaLaunchKernel", "Runtime", pid_, tid, {at_ns, at_ns}) << R"("correlation":)" << launch;
    if (external_id > 0) out_ << R"(,"External id":)" << external_id;
    end_slice();
    start_event() << R"({"ph":"s","id":)" << launch << R"(,"pid":)" << pid_ << R"(,"tid":)" << tid << R"(,"ts":)";
    out_.scaled(at_ns + kTraceStartNs, 3) << R"(,"cat":"ac2g","name":"ac2g"})";
    return launch;
  }

  void write_arrow_end(int64_t pid, int64_t tid, int64_t at_ns, int64_t launch) {
    start_event() << R"({"ph":"f","id":)" << launch << R"(,"pid":)" << pid << R"(,"tid":)" << tid << R"(,"ts":)";
    out_.scaled(at_ns + kTraceStartNs, 3) << R"(,"cat":"ac2g","name":"ac2g","bp":"e"})";
  }

  void write_call(const Slice& slice, Interval when, int64_t tid, int64_t id) {
    const ZoneKind kind = kind_of(slice);
    const bool is_operator = kind == ZoneKind::kCompute || slice.is_handed_over;
    start_slice(zone_info(slice.zone).name, is_operator ? "cpu_op" : "user_annotation", pid_, tid, when)
        << R"("External id":)" << id;
    write_operands(slice);
    write_place(slice);
    end_slice();
  }

  void write_operands(const Slice& slice) {
    const OperatorFacts* facts = find_operator(input_.capture.info.model.operators, slice.zone);
    if (facts == nullptr) return;
    const int32_t step = steps_.find(slice.step);
    const int64_t sequences = step < 0 ? 1 : input_.timeline.steps[static_cast<std::size_t>(step)].num_sequences;
    const SpanCounts counts = facts->counts(slice.a, slice.b, sequences);
    out_ << R"(,"Input Dims":)" << shapes_text(facts->inputs, counts) << R"(,"Input type":)" << types_text(facts->inputs);
    const double flop = facts->flop.of(counts);
    if (flop >= 1 && flop < kMostCounted) out_ << R"(,"flops":)" << static_cast<int64_t>(std::llround(flop));
  }

  const ReportInput& input_;
  const TraceFacts& facts_;
  const RankCapture& rank_;
  const StepIndex steps_;
  TextFile out_;
  const int64_t pid_;
  int64_t main_tid_ = pid_;  // the thread of steps and messages
  bool is_first_ = true;
  int64_t num_ids_ = 0, num_launches_ = 0;
  std::vector<TraceArg> args_;
};

}  // namespace

void write_kineto_traces(const ReportInput& input, const std::filesystem::path& directory) {
  std::error_code failure;
  std::filesystem::create_directories(directory, failure);
  if (failure) throw Error(ErrorCode::kUnavailable, "'" + directory.string() + "' cannot be made: " + failure.message());
  const TraceFacts facts(input);
  for (const RankCapture& rank : input.capture.ranks) {
    if (rank.threads.empty()) continue;  // lost before it could hand in what it recorded
    KinetoWriter(input, facts, rank, directory / ("rank-" + std::to_string(rank.rank) + ".pt.trace.json")).write();
  }
}

}  // namespace ferry

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/export/ascend_overlap.h"
#include "profiler/export/ascend_rank.h"
#include "profiler/export/ascend_tensors.h"
#include "profiler/export/shown_end.h"
#include "profiler/report/timeline/intervals.h"

namespace ferry {
namespace {

/// Processes of the trace by their sort index, which is part of their ids. Readers know all but kRequests and kCounters.
enum class TraceProcess : uint8_t {
  kPython = 0,
  kRequests = 2,
  kCann = 7,
  kHardware = 14,
  kCommunication = 16,
  kCounters = 17,
  kOverlap = 31,
};

constexpr int64_t kHostDevice = 31;
constexpr int64_t kFirstGroupTid = 1;   // of the communication process
constexpr int64_t kStepsTid = 1 << 22;  // above every thread's: Linux numbers threads below
constexpr int64_t kExchangeTid = kStepsTid + 1;
constexpr uint64_t kProcessBits = 22;  // of an id of the system: Linux numbers processes below 2^22

class TraceView {
 public:
  TraceView(const AscendRank& rank, TextFile& out)
      : rank_(rank),
        out_(out),
        operands_(rank),
        arrows_(find_arrow_ends(rank.input.timeline)),
        by_call_(rank.work.kernels.size()) {
    std::iota(by_call_.begin(), by_call_.end(), 0);
    std::ranges::stable_sort(by_call_, {}, [&](int32_t k) { return kernel_at(k).call; });
  }

  void write() {
    out_ << "[";
    write_steps();
    write_streams();
    write_collectives();
    write_overlap();
    write_requests();
    write_counters();
    out_ << "\n]\n";
  }

 private:
  const Timeline& timeline() const { return rank_.input.timeline; }
  const Slice& slice_at(int32_t slice) const { return timeline().slices[static_cast<std::size_t>(slice)]; }
  const AscendKernel& kernel_at(int32_t kernel) const { return rank_.work.kernels[static_cast<std::size_t>(kernel)]; }
  std::span<const int32_t> kernels_of(int32_t call) const;
  const Lane& lane_at(int32_t lane) const { return timeline().lanes[static_cast<std::size_t>(lane)]; }

  /// os_pid << 10 | sort_index << 5 | device: readers take the device from the lowest bits.
  int64_t pid_of(TraceProcess process) const {
    const bool is_device =
        process == TraceProcess::kHardware || process == TraceProcess::kCommunication || process == TraceProcess::kOverlap;
    const auto os_pid = static_cast<uint64_t>(rank_.capture.pid) & ((uint64_t{1} << kProcessBits) - 1);
    return static_cast<int64_t>(os_pid << 10) | static_cast<int64_t>(process) << 5 | (is_device ? rank_.device : kHostDevice);
  }

  TextFile& start_event() {
    out_ << (is_first_ ? "\n" : ",\n");
    is_first_ = false;
    return out_;
  }

  TextFile& start_metadata(std::string_view name, TraceProcess process, int64_t tid, std::string_view key) {
    return start_event() << R"({"name":")" << name << R"(","pid":)" << pid_of(process) << R"(,"tid":)" << tid
                         << R"(,"ph":"M","args":{")" << key << R"(":)";
  }

  void describe(TraceProcess process, std::string_view name) {
    const bool is_device = (pid_of(process) & 31) != kHostDevice;
    const std::string label = is_device ? "NPU " + std::to_string(rank_.device) : "CPU";
    start_metadata("process_name", process, 0, "name") << quoted_json(name) << "}}";
    start_metadata("process_labels", process, 0, "labels") << quoted_json(label) << "}}";
    start_metadata("process_sort_index", process, 0, "sort_index") << static_cast<int64_t>(process) << "}}";
  }

  void describe_thread(TraceProcess process, int64_t tid, std::string_view name, int64_t sort_index) {
    start_metadata("thread_name", process, tid, "name") << quoted_json(name) << "}}";
    start_metadata("thread_sort_index", process, tid, "sort_index") << sort_index << "}}";
  }

  /// An event up to its arguments, which the caller writes and end_slice() closes. `name` needs no quoting.
  TextFile& start_slice(std::string_view name, TraceProcess process, int64_t tid, Interval when,
                        std::string_view category = {}) {
    start_event() << R"({"name":")" << name;
    if (!category.empty()) out_ << R"(","cat":")" << category;
    out_ << R"(","pid":)" << pid_of(process) << R"(,"tid":)" << tid << R"(,"ts":)";
    out_.scaled(when.begin + kTraceStartNs, 3) << R"(,"dur":)";
    return out_.scaled(when.end - when.begin, 3) << R"(,"ph":"X","args":{)";
  }
  void end_slice() { out_ << "}}"; }

  /// What the slice says of itself, after arguments that are already written if `is_first` is false.
  void write_args(const Slice& slice, bool is_first) {
    rank_.facts.fill_args(slice, args_);
    for (const TraceArg& arg : args_) {
      out_ << (is_first ? "\"" : ",\"") << arg.name << "\":";
      is_first = false;
      if (arg.text == nullptr) {
        out_ << arg.value;
      } else {
        out_ << quoted_json(arg.text);
      }
    }
  }

  void write_flow_end(std::string_view name, std::string_view category, bool is_start, int64_t id, TraceProcess process,
                      int64_t tid, int64_t at_ns);
  void write_call_flow(const AscendKernel& kernel, bool is_launch, bool is_start);
  void write_moe_flows(int32_t slice, int64_t stream);
  void write_steps();
  void write_calls(int32_t lane, int64_t sort_index);
  void write_call(int32_t call, int32_t last);
  void write_streams();
  void write_stream(int32_t lane, int64_t stream, const std::vector<int32_t>& kernels);
  void write_collectives();
  int64_t write_group(bool is_dispatch, int64_t tid);
  void write_collective(const Collective& collective, int64_t tid);
  void write_link(const CollectiveLink& link, int64_t tid);
  void write_overlap();
  void write_overlap_lane(int64_t tid, std::string_view name, const IntervalSet& pieces);
  void write_requests();
  void write_counters();

  const AscendRank& rank_;
  TextFile& out_;
  const AscendOperands operands_;
  const std::vector<ArrowEnd> arrows_;
  std::vector<int32_t> by_call_;  // kernels, as indices
  bool is_first_ = true;
  std::vector<TraceArg> args_;
};

/// The coordinator's steps, on every rank: what divides its time. Readers look for this name.
void TraceView::write_steps() {
  describe(TraceProcess::kPython, "Python");
  describe_thread(TraceProcess::kPython, kStepsTid, "steps", 0);
  for (const StepInfo& step : timeline().steps) {
    start_slice("ProfilerStep#" + std::to_string(step.step), TraceProcess::kPython, kStepsTid,
                {step.begin_ns, shown_end_ns(timeline(), step)}, "cpu_op");
    out_ << R"("step":)" << int64_t{step.step} << R"(,"phase":")" << phase_name(step.phase) << R"(","tokens":)"
         << step.num_tokens << R"(,"sequences":)" << step.num_sequences;
    end_slice();
  }
}

/// An arrow's end lies in a slice that is written before it.
void TraceView::write_flow_end(std::string_view name, std::string_view category, bool is_start, int64_t id,
                               TraceProcess process, int64_t tid, int64_t at_ns) {
  start_event() << R"({"name":")" << name << R"(","cat":")" << category << R"(","id":)" << id << R"(,"pid":)" << pid_of(process)
                << R"(,"tid":)" << tid << R"(,"ts":)";
  out_.scaled(at_ns + kTraceStartNs, 3) << (is_start ? R"(,"ph":"s"})" : R"(,"ph":"f","bp":"e"})");
}

/// One end of the arrows from a call to each of its kernels, under the names by which readers find what a kernel belongs to:
/// from the framework's operator, and (`is_launch`) from the launch to the first of them. Nothing is drawn to an empty slice,
/// nor from a call that nobody saw.
void TraceView::write_call_flow(const AscendKernel& kernel, bool is_launch, bool is_start) {
  const AscendCall& call = rank_.work.calls[static_cast<std::size_t>(kernel.call)];
  const Slice& ran = slice_at(kernel.slice);
  if (!call.is_seen || ran.duration_ns() == 0 || (is_launch && ran.is_continued)) return;
  const Slice& called = slice_at(call.slice);
  const int64_t number = &kernel - rank_.work.kernels.data() + 1, connection = AscendWork::connection(kernel.call);
  const std::string name = is_launch ? "HostToDevice" + std::to_string(connection) : "torch_to_npu";
  const TraceProcess host = is_launch ? TraceProcess::kCann : TraceProcess::kPython;
  write_flow_end(name, is_launch ? "HostToDevice" : "async_npu", is_start, is_launch ? connection : number,
                 is_start ? host : TraceProcess::kHardware, is_start ? lane_at(called.lane).tid : kernel.stream,
                 is_start ? called.begin_ns : ran.begin_ns);
}

/// From a dispatch to the combine that needs its experts' rows.
void TraceView::write_moe_flows(int32_t slice, int64_t stream) {
  if (slice_at(slice).duration_ns() == 0) return;
  for (const ArrowEnd& arrow : arrow_ends_of(arrows_, slice)) {
    if (arrow.role == ArrowEnd::Role::kStep) continue;  // the worker's end is in the worker's file
    write_flow_end("dispatch_to_combine", "moe", arrow.role == ArrowEnd::Role::kStart, static_cast<int64_t>(arrow.id),
                   TraceProcess::kHardware, stream, slice_at(slice).begin_ns);
  }
}

/// What a thread called and did beside; both nest because the thread's lane does.
void TraceView::write_calls(int32_t lane, int64_t sort_index) {
  const auto [first, last] = timeline().lane_range(lane);
  const int64_t tid = lane_at(lane).tid;
  const auto is_shown = [](const Slice& slice) { return zone_info(slice.zone).kind != ZoneKind::kStep; };
  if (std::none_of(timeline().slices.begin() + first, timeline().slices.begin() + last, is_shown)) return;
  describe_thread(TraceProcess::kPython, tid, lane_at(lane).name, sort_index);
  describe_thread(TraceProcess::kCann, tid, lane_at(lane).name, sort_index);
  for (int32_t i = first; i < last; ++i) {
    const Slice& slice = slice_at(i);
    if (const int32_t call = rank_.work.call_of(i); call >= 0) {
      write_call(call, last);
    } else if (is_shown(slice) && kind_of(slice) != ZoneKind::kCompute) {
      start_slice(std::string(host_level(kind_of(slice))) + "@" + zone_info(slice.zone).name, TraceProcess::kCann, tid,
                  {slice.begin_ns, slice.end_ns});
      write_args(slice, true);
      end_slice();
    }  // steps have a lane of their own, operators within a wait are no kernels
  }
}

/// As the framework's operator and as its launch, which takes time only where a device is another one than the thread. `last`
/// is the end of the lane's slices.
void TraceView::write_call(int32_t call, int32_t last) {
  const int32_t slice_idx = rank_.work.calls[static_cast<std::size_t>(call)].slice;
  const Slice& slice = slice_at(slice_idx);
  const int64_t tid = lane_at(slice.lane).tid;
  start_slice(zone_info(slice.zone).name, TraceProcess::kPython, tid,
              {slice.begin_ns, shown_end_ns(timeline(), slice_idx, last)}, "cpu_op");
  const AscendTensors inputs = operands_.inputs(slice);
  out_ << R"("Input Dims":)" << quoted_json(inputs.shapes) << R"(,"Input type":)" << quoted_json(inputs.types);
  if (const std::string flop = operands_.flop_text(slice); flop != "N/A") out_ << R"(,"flops":)" << flop;
  end_slice();
  const std::span<const int32_t> kernels = kernels_of(call);
  for (const int32_t kernel : kernels) write_call_flow(kernel_at(kernel), false, true);
  start_slice("Node@launch", TraceProcess::kCann, tid, {slice.begin_ns, slice.is_handed_over ? slice.end_ns : slice.begin_ns})
      << R"("connection_id":)" << AscendWork::connection(call);
  end_slice();
  for (const int32_t kernel : kernels) write_call_flow(kernel_at(kernel), true, true);
}

std::span<const int32_t> TraceView::kernels_of(int32_t call) const {
  const auto call_of = [&](int32_t k) { return kernel_at(k).call; };
  return {std::ranges::lower_bound(by_call_, call, {}, call_of), std::ranges::upper_bound(by_call_, call, {}, call_of)};
}

void TraceView::write_streams() {
  describe(TraceProcess::kCann, "CANN");
  describe(TraceProcess::kHardware, "Ascend Hardware");
  int64_t sort_index = 0;
  for (const int32_t lane : rank_.lanes) {
    if (lane_at(lane).kind == Lane::Kind::kThread) write_calls(lane, ++sort_index);
  }
  std::vector<int32_t> kernels(timeline().slices.size(), -1);  // by slice
  for (std::size_t k = 0; k < rank_.work.kernels.size(); ++k)
    kernels[static_cast<std::size_t>(rank_.work.kernels[k].slice)] = static_cast<int32_t>(k);
  int64_t stream = 0;
  for (const int32_t lane : rank_.lanes) {
    if (is_stream(lane_at(lane))) write_stream(lane, stream++, kernels);
  }
}

/// `kernels`: index of the kernel that a slice is, -1 if it is none.
void TraceView::write_stream(int32_t lane, int64_t stream, const std::vector<int32_t>& kernels) {
  const auto [first, last] = timeline().lane_range(lane);
  bool is_described = false;
  for (int32_t i = first; i < last; ++i) {
    const Slice& slice = slice_at(i);
    if (kind_of(slice) != ZoneKind::kCompute) continue;
    if (!is_described) describe_thread(TraceProcess::kHardware, stream, "Stream " + std::to_string(stream), stream);
    is_described = true;
    start_slice(zone_info(slice.zone).name, TraceProcess::kHardware, stream, {slice.begin_ns, slice.end_ns})
        << R"("Model Id":0,"Task Type":")" << accelerator_core(slice.zone) << R"(","Physic Stream Id":)" << stream
        << R"(,"Task Id":)" << i - first;
    const int32_t kernel_idx = kernels[static_cast<std::size_t>(i)];
    const AscendKernel* const kernel = kernel_idx < 0 ? nullptr : &kernel_at(kernel_idx);
    if (kernel != nullptr) out_ << R"(,"connection_id":)" << AscendWork::connection(kernel->call);
    write_args(slice, false);
    end_slice();
    for (const bool is_launch : {false, true}) {
      if (kernel != nullptr) write_call_flow(*kernel, is_launch, false);
    }
    write_moe_flows(i, stream);
  }
}

void TraceView::write_collectives() {
  if (rank_.collectives.collectives.empty()) return;
  describe(TraceProcess::kCommunication, "Communication");
  describe_thread(TraceProcess::kCann, kExchangeTid, "exchanges", kExchangeTid);
  const int64_t next_tid = write_group(true, kFirstGroupTid);
  write_group(false, next_tid);
}

/// A lane for the group's collectives (more where they overlap), then a plane for every lane of messages. Returns the next
/// free tid.
int64_t TraceView::write_group(bool is_dispatch, int64_t tid) {
  std::vector<const Collective*> collectives;
  for (const Collective& collective : rank_.collectives.collectives) {
    if (collective.is_dispatch == is_dispatch) collectives.push_back(&collective);
  }
  std::stable_sort(collectives.begin(), collectives.end(),
                   [](const Collective* x, const Collective* y) { return x->begin_ns < y->begin_ns; });
  std::vector<int64_t> lane_ends;
  for (const Collective* collective : collectives) {
    auto lane = std::find_if(lane_ends.begin(), lane_ends.end(), [&](int64_t end) { return end <= collective->begin_ns; });
    if (lane == lane_ends.end()) lane = lane_ends.insert(lane_ends.end(), 0);
    *lane = collective->end_ns;
    write_collective(*collective, tid + (lane - lane_ends.begin()));
  }
  for (std::size_t l = 0; l < lane_ends.size(); ++l) {
    const std::string number = l == 0 ? "" : " " + std::to_string(l + 1);
    describe_thread(TraceProcess::kCommunication, tid,
                    "Group " + std::string(collective_group(is_dispatch)) + number + " Communication", tid);
    ++tid;
  }
  std::map<int32_t, int64_t> planes;  // tid by lane of the timeline
  for (const Collective* collective : collectives) {
    for (int32_t l = collective->first_link; l < collective->last_link; ++l) {
      const CollectiveLink& link = rank_.collectives.links[static_cast<std::size_t>(l)];
      const auto [plane, is_new] = planes.try_emplace(slice_at(link.slice).lane, tid + static_cast<int64_t>(planes.size()));
      if (is_new) {
        const std::string name = "Plane " + std::to_string(planes.size() - 1);
        describe_thread(TraceProcess::kCommunication, plane->second, name, plane->second);
      }
      write_link(link, plane->second);
    }
  }
  return tid + static_cast<int64_t>(planes.size());
}

/// Its launch, which takes no time, then the collective itself.
void TraceView::write_collective(const Collective& collective, int64_t tid) {
  const auto index = static_cast<std::size_t>(&collective - rank_.collectives.collectives.data());
  const int64_t connection = rank_.connection(index);
  const std::string name = collective_name(collective), flow = "HostToDevice" + std::to_string(connection);
  const bool is_drawn = collective.elapse_ns() > 0;
  start_slice("Communication@" + name, TraceProcess::kCann, kExchangeTid, {collective.begin_ns, collective.begin_ns})
      << R"("connection_id":)" << connection;
  end_slice();
  if (is_drawn) write_flow_end(flow, "HostToDevice", true, connection, TraceProcess::kCann, kExchangeTid, collective.begin_ns);
  start_slice(name, TraceProcess::kCommunication, tid, {collective.begin_ns, collective.end_ns})
      << R"("connection_id":)" << connection << R"(,"rank_size":)" << static_cast<int64_t>(rank_.input.capture.ranks.size())
      << R"(,"data_type":)" << quoted_json(rank_.input.capture.info.model.dtype) << R"(,"alg_type":"direct","step":)"
      << int64_t{collective.step} << R"(,"layer":)" << collective.layer << ",";
  out_.key("sent(Byte)") << collective.sent_bytes << ",";
  out_.key("wait(us)").scaled(collective.wait_ns, 3);
  end_slice();
  if (is_drawn) write_flow_end(flow, "HostToDevice", false, connection, TraceProcess::kCommunication, tid, collective.begin_ns);
}

/// A message as HCCL logs it: the wait for the other side, then what moves the bytes.
void TraceView::write_link(const CollectiveLink& link, int64_t tid) {
  const bool is_near = std::string_view(transport_type(rank_, link.peer)) == "HCCS";
  const Interval wait{link.begin_ns, link.begin_ns + link.wait_ns};
  const auto write_part = [&](std::string_view name, Interval when) {
    start_slice(name, TraceProcess::kCommunication, tid, when)
        << R"("src rank":)" << (link.is_send ? rank_.capture.rank : link.peer) << R"(,"dst rank":)"
        << (link.is_send ? link.peer : rank_.capture.rank) << R"(,"transport type":")" << (is_near ? "SDMA" : "RDMA")
        << R"(","link type":")" << (is_near ? "HCCS" : "RDMA") << "\",";
    out_.key("size(Byte)") << link.bytes << ",";
    out_.key("bandwidth(GB/s)")
        .rounded(link.transit_ns() > 0 ? static_cast<double>(link.bytes) / static_cast<double>(link.transit_ns()) : 0, 4);
    write_args(slice_at(link.slice), false);
    end_slice();
  };
  if (link.wait_ns > 0) write_part("Notify_Wait", wait);
  if (link.transit_ns() > 0 || link.wait_ns == 0) write_part(is_near ? "Memcpy" : "RDMASend", {wait.end, link.end_ns});
}

void TraceView::write_overlap() {
  describe(TraceProcess::kOverlap, "Overlap Analysis");
  const std::array<IntervalSet, 4> overlap = find_overlap(rank_);
  for (std::size_t i = 0; i < overlap.size(); ++i) write_overlap_lane(static_cast<int64_t>(i), kOverlapNames[i], overlap[i]);
}

void TraceView::write_overlap_lane(int64_t tid, std::string_view name, const IntervalSet& pieces) {
  describe_thread(TraceProcess::kOverlap, tid, name, tid);
  for (const Interval& piece : pieces) {
    start_slice(name, TraceProcess::kOverlap, tid, piece);
    end_slice();
  }
}

void TraceView::write_requests() {
  bool is_first = true;
  for (const int32_t lane : rank_.lanes) {
    if (lane_at(lane).kind != Lane::Kind::kRequest) continue;
    if (is_first) describe(TraceProcess::kRequests, "Requests");
    is_first = false;
    describe_thread(TraceProcess::kRequests, lane_at(lane).tid, lane_at(lane).name, lane_at(lane).tid);
    const auto [first, last] = timeline().lane_range(lane);
    for (int32_t i = first; i < last; ++i) {
      const Slice& slice = slice_at(i);
      start_slice(zone_info(slice.zone).name, TraceProcess::kRequests, lane_at(lane).tid, {slice.begin_ns, slice.end_ns});
      write_args(slice, true);
      end_slice();
    }
  }
}

void TraceView::write_counters() {
  bool is_first = true;
  for (const CounterSample& sample : timeline().counters) {
    if (sample.rank != rank_.capture.rank) continue;
    if (is_first) describe(TraceProcess::kCounters, "Counters");
    is_first = false;
    start_event() << R"({"name":")" << rank_.facts.counter_rows()[rank_.facts.row_of(sample)].name << R"(","pid":)"
                  << pid_of(TraceProcess::kCounters) << R"(,"tid":0,"ts":)";
    out_.scaled(sample.at_ns + kTraceStartNs, 3) << R"(,"ph":"C","args":{"value":)" << sample.value << "}}";
  }
}

}  // namespace

void write_trace_view(const AscendRank& rank, TextFile& out) { TraceView(rank, out).write(); }

}  // namespace ferry

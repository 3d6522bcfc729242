#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/export/ascend_database_tables.h"
#include "profiler/export/ascend_memory.h"
#include "profiler/export/ascend_overlap.h"
#include "profiler/export/ascend_rank.h"
#include "profiler/export/ascend_tensors.h"
#include "profiler/export/busy_pieces.h"
#include "profiler/export/outline.h"
#include "profiler/export/shown_end.h"

namespace ferry {
namespace {

constexpr int64_t kNoContext = 4'294'967'295;
constexpr int64_t kFirstPlaneStream = 1000;  // above the numbers of threads

int64_t trace_ns(int64_t ns) { return ns + kTraceStartNs; }

/// The lane that most calls are of: where the work of the rank's steps is told; -1 if nothing was computed.
int32_t find_call_lane(const AscendRank& rank) {
  std::map<int32_t, int64_t> counts;
  for (const AscendCall& call : rank.work.calls) {
    if (call.is_seen) ++counts[rank.input.timeline.slices[static_cast<std::size_t>(call.slice)].lane];
  }
  if (counts.empty()) return find_main_lane(rank.input.timeline, rank.capture.rank);
  return std::ranges::max_element(counts, {}, [](const auto& count) { return count.second; })->first;
}

/// Fills the tables of one rank. What ran (a task of the device), the call that launched it (of CANN) and the operator that it
/// is (of the framework) are tied by a connection. Where a thread is the device all are one slice and the launch takes no time.
class ProfilerDatabase {
 public:
  ProfilerDatabase(const AscendRank& rank, SqliteFile& file)
      : rank_(rank),
        file_(file),
        tables_(file),
        operands_(rank),
        main_lane_(find_call_lane(rank)),
        main_thread_(main_lane_ < 0 ? global_tid(0) : global_tid(timeline().lanes[static_cast<std::size_t>(main_lane_)].tid)),
        num_connections_(rank.connection(rank.collectives.collectives.size()) - 1) {}

  void write(const AscendMetadata& metadata) {
    write_memory_tables(rank_, find_memory(rank_), tables_.strings, file_);
    write_run(metadata);
    for (std::size_t c = 0; c < rank_.work.calls.size(); ++c) write_call(static_cast<int32_t>(c));
    for (const AscendKernel& kernel : rank_.work.kernels) write_kernel(kernel);
    for (std::size_t c = 0; c < rank_.collectives.collectives.size(); ++c) write_collective(c);
    write_host_work();
    write_no_copy();
    write_modules();
    const std::array<IntervalSet, 4> overlap = find_overlap(rank_);
    for (std::size_t type = 0; type < overlap.size(); ++type) {
      for (const Interval& piece : overlap[type])
        tables_.overlap.insert(nullptr, rank_.device, trace_ns(piece.begin), trace_ns(piece.end), type);
    }
  }

 private:
  const Timeline& timeline() const { return rank_.input.timeline; }
  const Slice& slice_at(int32_t slice) const { return timeline().slices[static_cast<std::size_t>(slice)]; }
  int64_t id_of(std::string_view text) { return tables_.strings.id_of(text); }

  /// Process and thread in one number; a device's lane counts as a thread that has the process's number.
  int64_t global_tid(int64_t tid) const {
    const int64_t pid = rank_.capture.pid & 0x7fff'ffff;
    return pid << 32 | ((tid > 0 ? tid : pid) & 0xffff'ffff);
  }
  int64_t global_tid_of(const Slice& slice) const {
    return global_tid(timeline().lanes[static_cast<std::size_t>(slice.lane)].tid);
  }

  void write_run(const AscendMetadata& metadata);
  void write_call(int32_t call_idx);
  void write_kernel(const AscendKernel& kernel);
  void write_collective(std::size_t collective_idx);
  void write_link(const Collective& collective, const CollectiveLink& link, int64_t connection);
  void write_task(Interval when, std::string_view type, int64_t stream, int64_t connection);
  void write_host_work();
  void write_no_copy();
  void write_modules();
  void write_range(Interval when, std::string_view domain, std::string_view message, int64_t tid);

  const AscendRank& rank_;
  SqliteFile& file_;
  ProfilerTables tables_;
  const AscendOperands operands_;
  const int32_t main_lane_;            // index into Timeline::lanes, -1: nothing was computed
  const int64_t main_thread_;          // of what belongs to no thread
  std::map<int32_t, int64_t> planes_;  // by lane of the timeline
  int64_t num_connections_, num_tasks_ = 0, num_collectives_ = 0, num_ranges_ = 0;
};

void ProfilerDatabase::write_run(const AscendMetadata& metadata) {
  for (const auto& [name, value] : metadata) tables_.meta_data.insert(name, value);
  tables_.rank_device.insert(rank_.capture.rank, rank_.device);
  tables_.host.insert(rank_.capture.boot_id.empty() ? rank_.capture.host : rank_.capture.boot_id, rank_.capture.host);
  tables_.npu.insert(rank_.device, rank_.capture.device.name.empty() ? "CPU" : rank_.capture.device.name);
  for (const StepInfo& step : timeline().steps) {
    tables_.step_time.insert(step.step, trace_ns(step.begin_ns), trace_ns(step.end_ns));
    tables_.framework_api.insert(trace_ns(step.begin_ns), trace_ns(shown_end_ns(timeline(), step)), main_thread_, nullptr,
                                 id_of("ProfilerStep#" + std::to_string(step.step)), nullptr, nullptr, nullptr, nullptr,
                                 nullptr, static_cast<int>(ApiType::kOperator));
  }
}

void ProfilerDatabase::write_task(Interval when, std::string_view type, int64_t stream, int64_t connection) {
  ++num_tasks_;
  tables_.task.insert(trace_ns(when.begin), trace_ns(when.end), rank_.device, connection, num_tasks_, rank_.capture.pid,
                      id_of(type), kNoContext, stream, num_tasks_, 0);
}

void ProfilerDatabase::write_call(int32_t call_idx) {
  const AscendCall& call = rank_.work.calls[static_cast<std::size_t>(call_idx)];
  const Slice& slice = slice_at(call.slice);
  const int64_t connection = AscendWork::connection(call_idx);
  const int64_t thread = call.is_seen ? global_tid_of(slice) : main_thread_;
  const AscendTensors inputs = operands_.inputs(slice);
  const int64_t shown_ns =
      call.is_seen ? shown_end_ns(timeline(), call.slice, timeline().lane_range(slice.lane).second) : slice.begin_ns;
  tables_.framework_api.insert(trace_ns(slice.begin_ns), trace_ns(shown_ns), thread, connection,
                               id_of(zone_info(slice.zone).name), nullptr, nullptr, id_of(inputs.types), id_of(inputs.shapes),
                               nullptr, static_cast<int>(ApiType::kOperator));
  tables_.connections.insert(connection, connection);
  tables_.cann_api.insert(trace_ns(slice.begin_ns), trace_ns(slice.is_handed_over ? slice.end_ns : slice.begin_ns),
                          static_cast<int>(ApiType::kNode), thread, connection, id_of("launch"));
}

void ProfilerDatabase::write_kernel(const AscendKernel& kernel) {
  const Slice& slice = slice_at(kernel.slice);
  const AscendTensors inputs = operands_.inputs(slice), outputs = operands_.outputs(slice);
  const char* const core = accelerator_core(slice.zone);
  write_task({slice.begin_ns, slice.begin_ns + kernel.work_ns}, core, kernel.stream, AscendWork::connection(kernel.call));
  tables_.compute_task.insert(id_of(zone_info(slice.zone).name), num_tasks_, std::max(rank_.capture.num_threads, 1), 0,
                              id_of(core), id_of(operator_type(slice.zone)), id_of(inputs.formats), id_of(inputs.types),
                              id_of(inputs.shapes), id_of(outputs.formats), id_of(outputs.types), id_of(outputs.shapes),
                              nullptr, id_of("static"), id_of("NO"));
  if (const std::string flop = operands_.flop_text(slice); flop != "N/A") {
    // The reader gives a range's operations to the operators that begin in it, ends included.
    write_range({slice.begin_ns, slice.begin_ns + 1}, "mfu_flops", flop + "-" + zone_info(slice.zone).name,
                global_tid_of(slice));
  }
}

void ProfilerDatabase::write_collective(std::size_t collective_idx) {
  const Collective& collective = rank_.collectives.collectives[collective_idx];
  const int64_t connection = rank_.connection(collective_idx);
  const int64_t name = id_of(unique_collective_name(collective));
  const CollectiveLink& first = rank_.collectives.links[static_cast<std::size_t>(collective.first_link)];
  const Slice& message = slice_at(first.slice);
  ++num_collectives_;
  tables_.framework_api.insert(trace_ns(collective.begin_ns), trace_ns(collective.end_ns), main_thread_, connection,
                               id_of(zone_info(message.zone).name), nullptr, nullptr, nullptr, nullptr, nullptr,
                               static_cast<int>(ApiType::kOperator));
  tables_.connections.insert(connection, connection);
  tables_.cann_api.insert(trace_ns(collective.begin_ns), trace_ns(collective.begin_ns),
                          static_cast<int>(ApiType::kCommunication), main_thread_, connection, name);
  // Bytes are what is known of it: as many elements of one byte.
  tables_.communication_operator.insert(name, trace_ns(collective.begin_ns), trace_ns(collective.end_ns), connection,
                                        id_of(collective_group(collective.is_dispatch)), num_collectives_, nullptr, nullptr,
                                        static_cast<int>(HcclDataType::kInt8), id_of("direct"), collective.sent_bytes,
                                        id_of("hcom_alltoallv_"), rank_.device);
  for (int32_t l = collective.first_link; l < collective.last_link; ++l)
    write_link(collective, rank_.collectives.links[static_cast<std::size_t>(l)], connection);
}

/// A message as HCCL logs it: the wait for the other side, then what moves the bytes.
void ProfilerDatabase::write_link(const Collective& collective, const CollectiveLink& link, int64_t connection) {
  const bool is_near = std::string_view(transport_type(rank_, link.peer)) == "HCCS";
  const int64_t plane = planes_.try_emplace(slice_at(link.slice).lane, static_cast<int64_t>(planes_.size())).first->second;
  const auto write_part = [&](const char* type, Interval when) {
    write_task(when, type, kFirstPlaneStream + plane, connection);
    const double bandwidth =
        link.transit_ns() > 0 ? static_cast<double>(link.bytes) / static_cast<double>(link.transit_ns()) : 0;
    tables_.communication_task.insert(
        id_of(unique_collective_name(collective)), num_tasks_, id_of(type), plane,
        id_of(collective_group(collective.is_dispatch)), nullptr, kHcclNone, link.is_send ? rank_.capture.rank : link.peer,
        link.is_send ? link.peer : rank_.capture.rank, static_cast<int>(is_near ? HcclTransport::kSdma : HcclTransport::kRdma),
        link.bytes, static_cast<int>(HcclDataType::kInt8), static_cast<int>(is_near ? HcclLink::kHccs : HcclLink::kRoce),
        num_collectives_, 1, bandwidth);
  };
  const int64_t joined_ns = link.begin_ns + link.wait_ns;
  if (link.wait_ns > 0) write_part("Notify_Wait", {link.begin_ns, joined_ns});
  if (link.transit_ns() > 0 || link.wait_ns == 0) write_part(is_near ? "Memcpy" : "RDMASend", {joined_ns, link.end_ns});
}

/// What threads do beside operators, as trace_view.json has it.
void ProfilerDatabase::write_host_work() {
  const std::map<std::string_view, ApiType> types = {
      {"Model", ApiType::kModel}, {"Node", ApiType::kNode}, {"Runtime", ApiType::kRuntime}};
  for (const int32_t lane : rank_.lanes) {
    if (!is_stream(timeline().lanes[static_cast<std::size_t>(lane)])) continue;
    const auto [first, last] = timeline().lane_range(lane);
    for (int32_t i = first; i < last; ++i) {
      const Slice& slice = slice_at(i);
      const ZoneKind kind = kind_of(slice);
      if (kind == ZoneKind::kCompute || slice.is_handed_over) continue;  // which are calls
      tables_.cann_api.insert(trace_ns(slice.begin_ns), trace_ns(slice.end_ns), static_cast<int>(types.at(host_level(kind))),
                              global_tid_of(slice), ++num_connections_, id_of(zone_info(slice.zone).name));
    }
  }
}

/// A copy of nothing that takes no time: msprof-analyze sums up a cluster's time only where its ranks copied at all.
void ProfilerDatabase::write_no_copy() {
  if (timeline().steps.empty()) return;
  const int64_t begin_ns = timeline().steps.front().begin_ns;
  write_task({begin_ns, begin_ns}, "MEMCPY_ASYNC", 0, ++num_connections_);
}

/// Step, layer and part as modules around the calls of the lane that has most of them: readers make one tree of all.
void ProfilerDatabase::write_modules() {
  if (main_lane_ < 0) return;
  for (const DrawnSlice& drawn : rank_.outline.draw(main_lane_)) {
    const bool is_step = drawn.slice >= 0 && slice_at(drawn.slice).zone == Zone::kStep;
    if (drawn.outline == nullptr && !is_step) continue;
    write_range({drawn.begin_ns, drawn.end_ns}, "Module",
                is_step ? rank_.outline.slice_name(slice_at(drawn.slice)) : drawn.outline->name, main_thread_);
  }
}

void ProfilerDatabase::write_range(Interval when, std::string_view domain, std::string_view message, int64_t tid) {
  tables_.ranges.insert(trace_ns(when.begin), trace_ns(when.end), kMstxRange, ++num_ranges_, nullptr, id_of(message), tid, tid,
                        id_of(domain), nullptr);
}

}  // namespace

void write_profiler_database(const AscendRank& rank, const AscendMetadata& metadata, const std::filesystem::path& path) {
  SqliteFile file(path);
  ProfilerDatabase(rank, file).write(metadata);
  file.close();
}

}  // namespace ferry

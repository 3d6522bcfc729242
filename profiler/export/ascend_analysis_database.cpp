#include <string>
#include <string_view>

#include "profiler/export/ascend_rank.h"
#include "profiler/export/ascend_traffic.h"
#include "profiler/export/sqlite_file.h"

namespace ferry {
namespace {

double ms(int64_t ns) { return static_cast<double>(ns) / 1e6; }
double mb(int64_t bytes) { return static_cast<double>(bytes) / 1e6; }

/// What communication.json and communication_matrix.json say, as tables: ms, MB and GB/s.
class CommunicationTables {
 public:
  CommunicationTables(const AscendRank& rank, SqliteFile& file)
      : rank_(rank),
        time_(file, "CommAnalyzerTime",
              "hccl_op_name TEXT, group_name TEXT, start_timestamp NUMERIC, elapse_time NUMERIC, transit_time NUMERIC, "
              "wait_time NUMERIC, synchronization_time NUMERIC, idle_time NUMERIC, synchronization_time_ratio NUMERIC, "
              "wait_time_ratio NUMERIC, step TEXT, type TEXT"),
        bandwidth_(file, "CommAnalyzerBandwidth",
                   "hccl_op_name TEXT, group_name TEXT, transport_type TEXT, transit_size NUMERIC, transit_time NUMERIC, "
                   "bandwidth NUMERIC, large_packet_ratio NUMERIC, package_size NUMERIC, count NUMERIC, "
                   "total_duration NUMERIC, step TEXT, type TEXT"),
        matrix_(file, "CommAnalyzerMatrix",
                "hccl_op_name TEXT, group_name TEXT, src_rank TEXT, dst_rank TEXT, transport_type TEXT, transit_size NUMERIC, "
                "transit_time NUMERIC, bandwidth NUMERIC, step TEXT, type TEXT, op_name TEXT") {}

  void write_step(uint32_t number) {
    const std::string step = "step" + std::to_string(number);
    const std::span<const Collective> collectives = collectives_of(rank_, number);
    for (const Collective& collective : collectives) write_collective(collective, step);
    for (const bool is_dispatch : {true, false}) write_links(collectives, is_dispatch, step);
  }

 private:
  void write_collective(const Collective& collective, const std::string& step) {
    AscendTimes times;
    times.add(collective);
    const std::string group = collective_group_hash(collective.is_dispatch);
    const std::string name = unique_collective_name(collective) + "@" + group;
    time_.insert(name, group, static_cast<double>(collective.begin_ns + kTraceStartNs) / 1e3, ms(times.elapse_ns),
                 ms(times.transit_ns), ms(times.wait_ns), ms(times.synchronization_ns), ms(times.idle_ns()),
                 times.synchronization_ratio(), times.wait_ratio(), step, "collective");
    AscendVolume volume;
    for (const CollectiveLink& link : links_of(rank_, collective)) volume.add(rank_, link);
    write_traffic(name, group, "RDMA", volume.far, step);
    write_traffic(name, group, "HCCS", volume.near, step);
    write_traffic(name, group, "SDMA", volume.near, step);
  }

  /// A row for each size of message; those of a way that was not used are none.
  void write_traffic(const std::string& name, const std::string& group, const char* transport, const AscendTraffic& traffic,
                     const std::string& step) {
    for (const auto& [bytes, amount] : traffic.sizes) {
      bandwidth_.insert(name, group, transport, mb(traffic.bytes), ms(traffic.transit_ns), traffic.gb_per_s(),
                        traffic.large_ratio(), mb(bytes), amount.first, ms(amount.second), step, "collective");
    }
  }

  void write_links(std::span<const Collective> collectives, bool is_dispatch, const std::string& step) {
    bool is_used = false;
    for (const Collective& collective : collectives) is_used |= collective.is_dispatch == is_dispatch;
    if (!is_used) return;
    for (const auto& [target, traffic] : sent_by_target(rank_, collectives, is_dispatch)) {
      const char* const transport = target == rank_.capture.rank ? "LOCAL" : transport_type(rank_, target);
      matrix_.insert("alltoallv-total", collective_group_hash(is_dispatch), std::to_string(rank_.capture.rank),
                     std::to_string(target), transport, mb(traffic.bytes), ms(traffic.transit_ns), traffic.gb_per_s(), step,
                     "collective", "");
    }
  }

  const AscendRank& rank_;
  SqliteTable time_, bandwidth_, matrix_;
};

void write_step_times(const AscendRank& rank, SqliteFile& file) {
  SqliteTable table(file, "StepTraceTime",
                    "deviceId INTEGER, step TEXT, computing NUMERIC, communication_not_overlapped NUMERIC, "
                    "overlapped NUMERIC, communication NUMERIC, free NUMERIC, stage NUMERIC, bubble NUMERIC, "
                    "communication_not_overlapped_and_exclude_receive NUMERIC, preparing NUMERIC");
  const auto us = [](int64_t ns) { return static_cast<double>(ns) / 1e3; };
  for (const AscendStepTime& step : find_step_times(rank)) {
    const auto& ns = step.ns;
    table.insert(rank.device, std::to_string(step.step), us(ns[0]), us(ns[1]), us(ns[2]), us(ns[3]), us(ns[4]), us(ns[5]),
                 us(ns[6]), us(ns[7]), us(ns[8]));
  }
}

void write_communication_tables(const AscendRank& rank, SqliteFile& file) {
  CommunicationTables tables(rank, file);
  for (const StepInfo& step : rank.input.timeline.steps) tables.write_step(step.step);
}

}  // namespace

void write_analysis_database(const AscendRank& rank, const std::filesystem::path& path) {
  SqliteFile file(path);
  write_step_times(rank, file);
  write_communication_tables(rank, file);
  file.close();
}

}  // namespace ferry

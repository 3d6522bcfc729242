#include <algorithm>
#include <span>
#include <string>

#include "profiler/export/ascend_rank.h"
#include "profiler/export/ascend_traffic.h"

namespace ferry {
namespace {

/// Writes `{"step1": …, "step2": …}`: for every step what `write_step` writes between the braces of its collectives.
template <class WriteStep>
void write_steps(const AscendRank& rank, TextFile& out, WriteStep&& write_step) {
  out << "{";
  std::string_view separator;
  for (const StepInfo& step : rank.input.timeline.steps) {
    (out << separator << "\n").key("step" + std::to_string(step.step)) << R"({"p2p": {}, "collective": {)";
    write_step(collectives_of(rank, step.step));
    out << "}}";
    separator = ",";
  }
  out << "\n}\n";
}

class Communication {
 public:
  Communication(const AscendRank& rank, TextFile& out) : rank_(rank), out_(out) {}

  void write_step(std::span<const Collective> collectives) {
    AscendTimes all_times;
    AscendVolume all_volume;
    for (const Collective& collective : collectives) {
      AscendTimes times;
      AscendVolume volume;
      times.add(collective);
      all_times.add(collective);
      for (const CollectiveLink& link : links_of(rank_, collective)) {
        volume.add(rank_, link);
        all_volume.add(rank_, link);
      }
      const std::string name = collective_name(collective) + "@" + collective_group_hash(collective.is_dispatch);
      write_operator(name, collective.begin_ns + kTraceStartNs, times, volume);
      out_ << ",";
    }
    if (!collectives.empty()) write_operator("Total Op Info", 0, all_times, all_volume);
  }

 private:
  void write_operator(std::string_view name, int64_t start_ns, const AscendTimes& times, const AscendVolume& volume) {
    (out_ << "\n").key(name) << "{";
    out_.key("Communication Time Info") << "{";
    out_.key("Start Timestamp(us)").scaled(start_ns, 3) << ", ";
    out_.key("Elapse Time(ms)").scaled(times.elapse_ns, 6) << ", ";
    out_.key("Transit Time(ms)").scaled(times.transit_ns, 6) << ", ";
    out_.key("Wait Time(ms)").scaled(times.wait_ns, 6) << ", ";
    out_.key("Synchronization Time(ms)").scaled(times.synchronization_ns, 6) << ", ";
    out_.key("Idle Time(ms)").scaled(times.idle_ns(), 6) << ", ";
    out_.key("Wait Time Ratio").rounded(times.wait_ratio(), 4) << ", ";
    out_.key("Synchronization Time Ratio").rounded(times.synchronization_ratio(), 4) << "}, ";
    out_.key("Communication Bandwidth Info") << "{";
    // SDMA is the sum of the ways within a host, of which only HCCS is used. Ways without messages are left out.
    if (volume.far.num_messages > 0) write_traffic("RDMA", volume.far);
    if (volume.far.num_messages > 0 && volume.near.num_messages > 0) out_ << ", ";
    if (volume.near.num_messages > 0) {
      write_traffic("HCCS", volume.near);
      out_ << ", ";
      write_traffic("SDMA", volume.near);
    }
    out_ << "}}";
  }

  void write_traffic(std::string_view transport, const AscendTraffic& traffic) {
    out_.key(transport) << "{";
    out_.key("Transit Size(MB)").scaled(traffic.bytes, 6) << ", ";
    out_.key("Transit Time(ms)").scaled(traffic.transit_ns, 6) << ", ";
    out_.key("Bandwidth(GB/s)").rounded(traffic.gb_per_s(), 4) << ", ";
    out_.key("Large Packet Ratio").rounded(traffic.large_ratio(), 4) << ", ";
    out_.key("Size Distribution") << "{";
    std::string_view separator;
    for (const auto& [bytes, amount] : traffic.sizes) {
      (out_ << separator << "\"").scaled(bytes, 6) << "\": [" << amount.first << ", ";
      out_.scaled(amount.second, 6) << "]";
      separator = ", ";
    }
    out_ << "}}";
  }

  const AscendRank& rank_;
  TextFile& out_;
};

class CommunicationMatrix {
 public:
  CommunicationMatrix(const AscendRank& rank, TextFile& out) : rank_(rank), out_(out) {}

  void write_step(std::span<const Collective> collectives) {
    bool is_first = true;
    for (const bool is_dispatch : {true, false}) {
      const bool is_used = std::any_of(collectives.begin(), collectives.end(),
                                       [&](const Collective& c) { return c.is_dispatch == is_dispatch; });
      if (!is_used) continue;
      (out_ << (is_first ? "\n" : ",\n")).key("alltoallv-total@" + collective_group_hash(is_dispatch)) << "{";
      is_first = false;
      write_links(collectives, is_dispatch);
      out_ << "}";
    }
  }

 private:
  void write_links(std::span<const Collective> collectives, bool is_dispatch) {
    std::string_view separator;
    for (const auto& [target, traffic] : sent_by_target(rank_, collectives, is_dispatch)) {
      const std::string_view transport = target == rank_.capture.rank ? "LOCAL" : transport_type(rank_, target);
      (out_ << separator).key(std::to_string(rank_.capture.rank) + "-" + std::to_string(target)) << "{";
      out_.key("Transport Type") << quoted_json(transport) << ", ";
      out_.key("Transit Size(MB)").scaled(traffic.bytes, 6) << ", ";
      out_.key("Transit Time(ms)").scaled(traffic.transit_ns, 6) << ", ";
      out_.key("Bandwidth(GB/s)").rounded(traffic.gb_per_s(), 4) << ", ";
      out_.key("Op Name") << quoted_json("") << "}";
      separator = ", ";
    }
  }

  const AscendRank& rank_;
  TextFile& out_;
};

}  // namespace

void write_communication(const AscendRank& rank, TextFile& out) {
  Communication communication(rank, out);
  write_steps(rank, out, [&](std::span<const Collective> collectives) { communication.write_step(collectives); });
}

void write_communication_matrix(const AscendRank& rank, TextFile& out) {
  CommunicationMatrix matrix(rank, out);
  write_steps(rank, out, [&](std::span<const Collective> collectives) { matrix.write_step(collectives); });
}

}  // namespace ferry

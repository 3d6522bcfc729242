#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "profiler/export/ascend_rank.h"

namespace ferry {
namespace {

// From these sizes on a message counts as large: what the readers' advice calls small is below.
constexpr int64_t kLargeNearBytes = 16'000'000;
constexpr int64_t kLargeFarBytes = 1'000'000;

struct Times {
  int64_t elapse_ns = 0, transit_ns = 0, wait_ns = 0, synchronization_ns = 0;

  void add(const Collective& collective) {
    elapse_ns += collective.elapse_ns();
    transit_ns += collective.transit_ns();
    wait_ns += collective.wait_ns;
    synchronization_ns += collective.synchronization_ns;
  }
};

/// What was sent by one kind of transport. Only senders count a message, so sums over ranks count none twice.
struct Traffic {
  int64_t bytes = 0, transit_ns = 0, num_messages = 0, num_large = 0;
  std::map<int64_t, std::pair<int64_t, int64_t>> sizes;  // bytes of a message -> how many, their ns

  void add(const CollectiveLink& link, bool is_large) {
    bytes += link.bytes;
    transit_ns += link.transit_ns();
    ++num_messages;
    if (is_large) ++num_large;
    auto& [count, ns] = sizes[link.bytes];
    ++count;
    ns += link.transit_ns();
  }
};

struct Volume {
  Traffic near, far;

  void add(const AscendRank& rank, const CollectiveLink& link) {
    if (!link.is_send) return;
    if (std::string_view(transport_type(rank, link.peer)) == "HCCS") {
      near.add(link, link.bytes >= kLargeNearBytes);
    } else {
      far.add(link, link.bytes >= kLargeFarBytes);
    }
  }
};

double ratio(int64_t part, int64_t whole) { return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole); }

/// Collectives of one step, and where the next step's are looked for.
class StepCollectives {
 public:
  explicit StepCollectives(const AscendRank& rank) : all_(rank.collectives.collectives) {}

  std::span<const Collective> of(uint32_t step) const {
    const auto first = std::partition_point(all_.begin(), all_.end(), [&](const Collective& c) { return c.step < step; });
    const auto last = std::partition_point(first, all_.end(), [&](const Collective& c) { return c.step == step; });
    return {first, last};
  }

 private:
  const std::vector<Collective>& all_;
};

std::span<const CollectiveLink> links_of(const AscendRank& rank, const Collective& collective) {
  return std::span(rank.collectives.links)
      .subspan(static_cast<std::size_t>(collective.first_link),
               static_cast<std::size_t>(collective.last_link - collective.first_link));
}

/// Writes `{"step1": …, "step2": …}`: for every step what `write_step` writes between the braces of its collectives.
template <class WriteStep>
void write_steps(const AscendRank& rank, TextFile& out, WriteStep&& write_step) {
  const StepCollectives collectives(rank);
  out << "{";
  std::string_view separator;
  for (const StepInfo& step : rank.input.timeline.steps) {
    (out << separator << "\n").key("step" + std::to_string(step.step)) << R"({"p2p": {}, "collective": {)";
    write_step(collectives.of(step.step));
    out << "}}";
    separator = ",";
  }
  out << "\n}\n";
}

class Communication {
 public:
  Communication(const AscendRank& rank, TextFile& out) : rank_(rank), out_(out) {}

  void write_step(std::span<const Collective> collectives) {
    Times all_times;
    Volume all_volume;
    for (const Collective& collective : collectives) {
      Times times;
      Volume volume;
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
  void write_operator(std::string_view name, int64_t start_ns, const Times& times, const Volume& volume) {
    (out_ << "\n").key(name) << "{";
    out_.key("Communication Time Info") << "{";
    out_.key("Start Timestamp(us)").scaled(start_ns, 3) << ", ";
    out_.key("Elapse Time(ms)").scaled(times.elapse_ns, 6) << ", ";
    out_.key("Transit Time(ms)").scaled(times.transit_ns, 6) << ", ";
    out_.key("Wait Time(ms)").scaled(times.wait_ns, 6) << ", ";
    out_.key("Synchronization Time(ms)").scaled(times.synchronization_ns, 6) << ", ";
    out_.key("Idle Time(ms)").scaled(times.elapse_ns - times.transit_ns - times.wait_ns, 6) << ", ";
    out_.key("Wait Time Ratio").rounded(ratio(times.wait_ns, times.wait_ns + times.transit_ns), 4) << ", ";
    out_.key("Synchronization Time Ratio")
            .rounded(ratio(times.synchronization_ns, times.synchronization_ns + times.transit_ns), 4)
        << "}, ";
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

  void write_traffic(std::string_view transport, const Traffic& traffic) {
    out_.key(transport) << "{";
    out_.key("Transit Size(MB)").scaled(traffic.bytes, 6) << ", ";
    out_.key("Transit Time(ms)").scaled(traffic.transit_ns, 6) << ", ";
    out_.key("Bandwidth(GB/s)").rounded(ratio(traffic.bytes, traffic.transit_ns), 4) << ", ";
    out_.key("Large Packet Ratio").rounded(ratio(traffic.num_large, traffic.num_messages), 4) << ", ";
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
    std::map<int32_t, Traffic> sent;  // by target
    sent[rank_.capture.rank];         // readers find the ranks of a group by their links to themselves
    for (const Collective& collective : collectives) {
      if (collective.is_dispatch != is_dispatch) continue;
      for (const CollectiveLink& link : links_of(rank_, collective)) {
        if (link.is_send) sent[link.peer].add(link, false);
      }
    }
    std::string_view separator;
    for (const auto& [target, traffic] : sent) {
      const std::string_view transport = target == rank_.capture.rank ? "LOCAL" : transport_type(rank_, target);
      (out_ << separator).key(std::to_string(rank_.capture.rank) + "-" + std::to_string(target)) << "{";
      out_.key("Transport Type") << quoted_json(transport) << ", ";
      out_.key("Transit Size(MB)").scaled(traffic.bytes, 6) << ", ";
      out_.key("Transit Time(ms)").scaled(traffic.transit_ns, 6) << ", ";
      out_.key("Bandwidth(GB/s)").rounded(ratio(traffic.bytes, traffic.transit_ns), 4) << ", ";
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

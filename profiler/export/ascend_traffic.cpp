#include "profiler/export/ascend_traffic.h"

#include <algorithm>
#include <string_view>

namespace ferry {
namespace {

// From these sizes on a message counts as large: what the readers' advice calls small is below.
constexpr int64_t kLargeNearBytes = 16'000'000;
constexpr int64_t kLargeFarBytes = 1'000'000;

double ratio(int64_t part, int64_t whole) { return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole); }

}  // namespace

void AscendTimes::add(const Collective& collective) {
  elapse_ns += collective.elapse_ns();
  transit_ns += collective.transit_ns();
  wait_ns += collective.wait_ns;
  synchronization_ns += collective.synchronization_ns;
}

double AscendTimes::wait_ratio() const { return ratio(wait_ns, wait_ns + transit_ns); }

double AscendTimes::synchronization_ratio() const { return ratio(synchronization_ns, synchronization_ns + transit_ns); }

void AscendTraffic::add(const CollectiveLink& link, bool is_large) {
  bytes += link.bytes;
  transit_ns += link.transit_ns();
  ++num_messages;
  if (is_large) ++num_large;
  auto& [count, ns] = sizes[link.bytes];
  ++count;
  ns += link.transit_ns();
}

double AscendTraffic::gb_per_s() const { return ratio(bytes, transit_ns); }

double AscendTraffic::large_ratio() const { return ratio(num_large, num_messages); }

void AscendVolume::add(const AscendRank& rank, const CollectiveLink& link) {
  if (!link.is_send) return;
  if (std::string_view(transport_type(rank, link.peer)) == "HCCS") {
    near.add(link, link.bytes >= kLargeNearBytes);
  } else {
    far.add(link, link.bytes >= kLargeFarBytes);
  }
}

std::map<int32_t, AscendTraffic> sent_by_target(const AscendRank& rank, std::span<const Collective> collectives,
                                                bool is_dispatch) {
  std::map<int32_t, AscendTraffic> sent;
  sent[rank.capture.rank];
  for (const Collective& collective : collectives) {
    if (collective.is_dispatch != is_dispatch) continue;
    for (const CollectiveLink& link : links_of(rank, collective)) {
      if (link.is_send) sent[link.peer].add(link, false);
    }
  }
  return sent;
}

std::span<const Collective> collectives_of(const AscendRank& rank, uint32_t step) {
  const std::vector<Collective>& all = rank.collectives.collectives;
  const auto first = std::partition_point(all.begin(), all.end(), [&](const Collective& c) { return c.step < step; });
  const auto last = std::partition_point(first, all.end(), [&](const Collective& c) { return c.step == step; });
  return {first, last};
}

std::span<const CollectiveLink> links_of(const AscendRank& rank, const Collective& collective) {
  return std::span(rank.collectives.links)
      .subspan(static_cast<std::size_t>(collective.first_link),
               static_cast<std::size_t>(collective.last_link - collective.first_link));
}

}  // namespace ferry

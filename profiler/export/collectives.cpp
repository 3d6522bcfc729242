#include "profiler/export/collectives.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "profiler/report/timeline/step_slices.h"

namespace ferry {
namespace {

/// Own slice or message, as it is searched for.
struct Key {
  ExchangeId exchange;
  bool is_combine = false;
  bool is_receive = false;
  int32_t peer = 0;

  friend auto operator<=>(const Key&, const Key&) = default;
  bool is_of_same_collective(const Key& other) const { return exchange == other.exchange && is_combine == other.is_combine; }
};

struct KeyedLink {
  Key key;
  CollectiveLink link;
};

struct KeyedBegin {
  Key key;
  int64_t begin_ns = 0;
};

std::vector<KeyedLink> find_links(const ReportInput& input, int32_t rank) {
  std::vector<KeyedLink> links;
  for (std::size_t l = 0; l < input.timeline.lanes.size(); ++l) {
    const Lane& lane = input.timeline.lanes[l];
    if (lane.rank != rank || lane.kind != Lane::Kind::kTransfer) continue;
    const auto [first, last] = input.timeline.lane_range(static_cast<int32_t>(l));
    for (int32_t i = first; i < last; ++i) {
      const Slice& slice = input.timeline.slices[static_cast<std::size_t>(i)];
      const bool is_send = slice.zone == Zone::kDispatchSend || slice.zone == Zone::kCombineSend;
      const bool is_combine = slice.zone == Zone::kCombineSend || slice.zone == Zone::kCombineReceive;
      const auto peer = static_cast<int32_t>(slice.b);
      links.push_back(
          {{exchange_of(slice), is_combine, !is_send, peer}, {i, peer, is_send, slice.a, slice.begin_ns, slice.end_ns, 0}});
    }
  }
  std::sort(links.begin(), links.end(), [](const KeyedLink& x, const KeyedLink& y) {
    return std::tie(x.key.exchange, x.key.is_combine, x.link.begin_ns, x.link.slice) <
           std::tie(y.key.exchange, y.key.is_combine, y.link.begin_ns, y.link.slice);
  });
  return links;
}

/// When the peers began their sides of the rank's messages, by key of the rank's side.
std::vector<KeyedBegin> find_peer_begins(const Timeline& timeline, int32_t rank) {
  std::vector<KeyedBegin> begins;
  for (const Message& m : timeline.messages) {
    if (m.source == rank) begins.push_back({{exchange_of(m), !m.is_dispatch, false, m.target}, m.receive_begin_ns});
    if (m.target == rank) begins.push_back({{exchange_of(m), !m.is_dispatch, true, m.source}, m.send_begin_ns});
  }
  std::sort(begins.begin(), begins.end(), [](const KeyedBegin& x, const KeyedBegin& y) { return x.key < y.key; });
  return begins;
}

/// How long a message waited for its other side, as CollectiveLink::wait_ns has it; absent if the other side is not known.
class PeerWaits {
 public:
  PeerWaits(const ReportInput& input, int32_t rank)
      : input_(input), rank_(rank), begins_(find_peer_begins(input.timeline, rank)) {}

  std::optional<int64_t> operator()(const KeyedLink& own) const {
    const auto found = std::lower_bound(begins_.begin(), begins_.end(), own.key,
                                        [](const KeyedBegin& begin, const Key& wanted) { return begin.key < wanted; });
    if (found == begins_.end() || found->key != own.key) return std::nullopt;
    const int64_t late_ns = found->begin_ns - own.link.begin_ns;
    const bool is_late = static_cast<double>(late_ns) > clock_bound_ns(input_, rank_, own.key.peer);
    return is_late && found->begin_ns < own.link.end_ns ? std::max<int64_t>(late_ns, 0) : 0;
  }

 private:
  const ReportInput& input_;
  int32_t rank_;
  std::vector<KeyedBegin> begins_;
};

}  // namespace

RankCollectives find_collectives(const ReportInput& input, int32_t rank) {
  const PeerWaits peer_waits(input, rank);
  const std::vector<KeyedLink> links = find_links(input, rank);
  RankCollectives found;
  found.links.reserve(links.size());
  for (std::size_t first = 0; first < links.size();) {
    const Key& key = links[first].key;
    Collective collective{.step = key.exchange.step,
                          .layer = key.exchange.layer,
                          .micro_batch = key.exchange.micro_batch,
                          .is_dispatch = !key.is_combine};
    collective.first_link = static_cast<int32_t>(first);
    collective.begin_ns = links[first].link.begin_ns;
    collective.end_ns = links[first].link.end_ns;
    std::optional<int64_t> first_joined_ns;  // after the collective's begin
    std::size_t i = first;
    for (; i < links.size() && links[i].key.is_of_same_collective(key); ++i) {
      CollectiveLink link = links[i].link;
      if (const auto wait_ns = peer_waits(links[i])) {
        link.wait_ns = *wait_ns;
        const int64_t joined_ns = link.wait_ns > 0 ? link.begin_ns + link.wait_ns - collective.begin_ns : 0;
        collective.wait_ns = std::max(collective.wait_ns, joined_ns);
        first_joined_ns = std::min(first_joined_ns.value_or(joined_ns), joined_ns);
      }
      collective.end_ns = std::max(collective.end_ns, link.end_ns);
      if (link.is_send) collective.sent_bytes += link.bytes;
      found.links.push_back(link);
    }
    collective.last_link = static_cast<int32_t>(i);
    collective.synchronization_ns = first_joined_ns.value_or(0);
    found.collectives.push_back(collective);
    first = i;
  }
  return found;
}

}  // namespace ferry

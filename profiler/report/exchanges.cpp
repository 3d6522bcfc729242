#include "profiler/report/exchanges.h"

#include <algorithm>
#include <tuple>

#include "profiler/report/statistics.h"
#include "profiler/report/step_slices.h"

namespace ferry {
namespace {

using Key = std::pair<ExchangeId, int32_t>;  // and worker

/// One end of a worker's part; two with the same key make a reply.
struct Half {
  Key key;
  const Message* message;
};

std::vector<Half> sort_messages(const Timeline& timeline) {
  std::vector<Half> halves;
  for (const Message& message : timeline.messages) {
    const int32_t worker = message.is_dispatch ? message.target : message.source;
    halves.push_back({{exchange_of(message), worker}, &message});
  }
  std::stable_sort(halves.begin(), halves.end(), [](const Half& x, const Half& y) {
    return std::tuple(x.key, !x.message->is_dispatch) < std::tuple(y.key, !y.message->is_dispatch);
  });
  return halves;
}

Exchanges pair_up(const std::vector<Half>& halves) {
  Exchanges exchanges;
  for (std::size_t i = 0; i + 1 < halves.size(); ++i) {
    const Message& dispatch = *halves[i].message;
    const Message& combine = *halves[i + 1].message;
    if (halves[i].key != halves[i + 1].key || !dispatch.is_dispatch || combine.is_dispatch) continue;
    const auto& [id, worker] = halves[i].key;
    if (exchanges.list.empty() || exchanges.list.back().id != id) {
      const std::size_t at = exchanges.replies.size();
      exchanges.list.push_back({id, dispatch.send_begin_ns, at, at});
    }
    Exchange& exchange = exchanges.list.back();
    exchange.begin_ns = std::min(exchange.begin_ns, dispatch.send_begin_ns);
    ++exchange.last;
    exchanges.replies.push_back({.rank = worker, .arrived_ns = dispatch.receive_end_ns, .posted_ns = combine.send_begin_ns});
    ++i;
  }
  return exchanges;
}

void add_slice(Exchanges& exchanges, const Slice& slice, int32_t rank) {
  if (rank == 0) {
    if (slice.zone != Zone::kWaitCombine) return;
    Reply* reply = exchanges.find(exchange_of(slice), static_cast<int32_t>(slice.b));
    if (reply != nullptr) reply->waited_ns += slice.duration_ns();
    return;
  }
  const auto zone = std::find(std::begin(kWorkZones), std::end(kWorkZones), slice.zone);
  if (zone == std::end(kWorkZones)) return;
  Reply* reply = exchanges.find(exchange_of(slice), rank);
  if (reply == nullptr) return;
  reply->work[static_cast<std::size_t>(zone - kWorkZones)] += slice.self_ns;
  if (slice.zone == Zone::kGroupedGateUp) reply->rows += slice.a;
}

/// Rank's value above the median of the others'.
template <class Get>
int64_t excess_over_others(std::span<const Reply> replies, const Reply& one, Get&& get) {
  std::vector<double> others;
  for (const Reply& reply : replies) {
    if (&reply != &one) others.push_back(static_cast<double>(get(reply)));
  }
  return get(one) - static_cast<int64_t>(median(std::move(others)));
}

std::span<const Reply> replies_of(const Exchanges& exchanges, const Exchange& exchange) {
  return std::span(exchanges.replies).subspan(exchange.first, exchange.last - exchange.first);
}

/// Counts the votes of one step's exchanges.
void close_step(std::vector<StragglerTally>& tallies, std::vector<int64_t>& votes) {
  const auto most = std::max_element(votes.begin(), votes.end());
  if (*most > 0) ++tallies[static_cast<std::size_t>(most - votes.begin())].steps_last;
  for (StragglerTally& tally : tallies) ++tally.steps;
  std::fill(votes.begin(), votes.end(), 0);
}

void add_vote(StragglerTally& tally, const Lateness& late, std::span<const Reply> replies) {
  ++tally.votes;
  tally.late_ns += late.late_ns;
  tally.max_late_ns = std::max(tally.max_late_ns, late.late_ns);
  tally.elapsed_ns += late.elapsed_ns;
  for (std::size_t cause = 0; cause < kNumCauses; ++cause) tally.excess[cause] += late.excess[cause];
  for (const Reply& reply : replies) {
    const auto rows = static_cast<double>(reply.rows);
    if (&reply == late.last) {
      tally.rows += rows;
    } else {
      tally.other_rows += rows / static_cast<double>(replies.size() - 1);
    }
  }
}

}  // namespace

const char* cause_name(std::size_t cause) {
  if (cause == kOtherWork) return "outside its operators";
  if (cause == kLateStart) return "late start";
  return zone_info(kWorkZones[cause]).name;
}

Reply* Exchanges::find(const ExchangeId& id, int32_t rank) {
  const auto at =
      std::lower_bound(list.begin(), list.end(), id, [](const Exchange& e, const ExchangeId& key) { return e.id < key; });
  if (at == list.end() || at->id != id) return nullptr;
  for (std::size_t i = at->first; i < at->last; ++i) {
    if (replies[i].rank == rank) return &replies[i];
  }
  return nullptr;
}

Exchanges find_exchanges(const ReportInput& input) {
  const Timeline& timeline = input.timeline;
  Exchanges exchanges = pair_up(sort_messages(timeline));
  for (const Slice& slice : timeline.slices) {
    if (slice.layer >= 0) add_slice(exchanges, slice, timeline.lanes[static_cast<std::size_t>(slice.lane)].rank);
  }
  for (Reply& reply : exchanges.replies) {
    int64_t rest_ns = reply.posted_ns - reply.arrived_ns;
    for (std::size_t zone = 0; zone < kNumWorkZones; ++zone) rest_ns -= reply.work[zone];
    reply.work[kOtherWork] = std::max<int64_t>(rest_ns, 0);
  }
  return exchanges;
}

Lateness find_last(const ReportInput& input, const Exchanges& exchanges, const Exchange& exchange) {
  constexpr double kMinShare = 0.05;
  Lateness late;
  const std::span<const Reply> replies = replies_of(exchanges, exchange);
  if (replies.size() < 2) return late;
  const auto last = std::max_element(replies.begin(), replies.end(),
                                     [](const Reply& x, const Reply& y) { return x.posted_ns < y.posted_ns; });
  late.last = &*last;
  late.late_ns = excess_over_others(replies, *last, [](const Reply& r) { return r.posted_ns; });
  late.elapsed_ns = last->posted_ns - exchange.begin_ns;
  for (const Reply& reply : replies) late.bound_ns = std::max(late.bound_ns, clock_bound_ns(input, last->rank, reply.rank));
  const auto late_ns = static_cast<double>(late.late_ns);
  late.has_vote = late_ns > late.bound_ns && late_ns > kMinShare * static_cast<double>(late.elapsed_ns);
  if (!late.has_vote) return late;
  for (std::size_t cause = 0; cause <= kOtherWork; ++cause)
    late.excess[cause] = excess_over_others(replies, *last, [cause](const Reply& r) { return r.work[cause]; });
  late.excess[kLateStart] = excess_over_others(replies, *last, [](const Reply& r) { return r.arrived_ns; });
  return late;
}

std::size_t StragglerTally::cause() const {
  return static_cast<std::size_t>(std::max_element(excess.begin(), excess.end()) - excess.begin());
}

std::vector<StragglerTally> tally_stragglers(const ReportInput& input) {
  const std::size_t num_ranks = input.capture.ranks.size();
  if (num_ranks < 3) return {};
  const Exchanges exchanges = find_exchanges(input);
  std::vector<StragglerTally> tallies(num_ranks - 1);
  for (std::size_t w = 0; w < tallies.size(); ++w) {
    tallies[w].rank = static_cast<int32_t>(w) + 1;
    for (std::size_t other = 1; other < num_ranks; ++other)
      tallies[w].bound_ns = std::max(tallies[w].bound_ns, clock_bound_ns(input, tallies[w].rank, static_cast<int32_t>(other)));
  }
  std::vector<int64_t> step_votes(tallies.size(), 0);
  for (std::size_t i = 0; i < exchanges.list.size(); ++i) {
    const Exchange& exchange = exchanges.list[i];
    const std::span<const Reply> replies = replies_of(exchanges, exchange);
    for (const Reply& reply : replies) {
      StragglerTally& tally = tallies.at(static_cast<std::size_t>(reply.rank) - 1);
      ++tally.collectives;
      tally.waited_ns += reply.waited_ns;
      tally.work_ns += static_cast<double>(reply.posted_ns - reply.arrived_ns);
    }
    const Lateness late = find_last(input, exchanges, exchange);
    if (late.has_vote) {
      const std::size_t w = static_cast<std::size_t>(late.last->rank) - 1;
      ++step_votes[w];
      add_vote(tallies[w], late, replies);
    }
    if (i + 1 == exchanges.list.size() || exchanges.list[i + 1].id.step != exchange.id.step) close_step(tallies, step_votes);
  }
  for (StragglerTally& tally : tallies) {
    if (tally.collectives > 0) tally.work_ns /= static_cast<double>(tally.collectives);
  }
  return tallies;
}

}  // namespace ferry

#include "profiler/report/lost_time/exchanges.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "profiler/report/statistics.h"

namespace ferry {
namespace {

using ExchangeKey = std::pair<ExchangeId, int32_t>;  // and worker

/// One end of a worker's part; two with the same key make a reply.
struct Half {
  ExchangeKey key;
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
      exchanges.list.push_back({.id = id, .begin_ns = dispatch.send_begin_ns, .first = at, .last = at});
    }
    SeenExchange& exchange = exchanges.list.back();
    exchange.begin_ns = std::min(exchange.begin_ns, dispatch.send_begin_ns);
    exchange.done_ns = std::max(exchange.done_ns, combine.receive_end_ns);
    ++exchange.last;
    exchanges.replies.push_back({.rank = worker,
                                 .dispatched_ns = dispatch.send_begin_ns,
                                 .free_ns = dispatch.send_begin_ns,
                                 .arrived_ns = dispatch.receive_end_ns,
                                 .posted_ns = combine.send_begin_ns,
                                 .seen_ns = combine.receive_end_ns,
                                 .wait_ns = combine.receive_end_ns,
                                 .rows = combine.bytes});
    ++i;
  }
  for (SeenExchange& exchange : exchanges.list) exchange.ready_ns = exchange.begin_ns;
  return exchanges;
}

/// A layer's second micro-batch may be posted while the worker still computes the first.
void find_free_moments(std::size_t num_ranks, Exchanges& exchanges) {
  std::vector<Reply*> in_turn;
  for (Reply& reply : exchanges.replies) in_turn.push_back(&reply);
  std::stable_sort(in_turn.begin(), in_turn.end(), [](const Reply* x, const Reply* y) { return x->posted_ns < y->posted_ns; });
  std::vector<int64_t> replied_ns(num_ranks, std::numeric_limits<int64_t>::min());
  for (Reply* reply : in_turn) {
    int64_t& before_ns = replied_ns.at(static_cast<std::size_t>(reply->rank));
    reply->free_ns = std::clamp(before_ns, reply->dispatched_ns, std::max(reply->dispatched_ns, reply->arrived_ns));
    before_ns = reply->posted_ns;
  }
}

/// Index into `list`, or its size.
std::size_t find(const std::vector<SeenExchange>& list, const ExchangeId& id) {
  const auto at =
      std::lower_bound(list.begin(), list.end(), id, [](const SeenExchange& e, const ExchangeId& key) { return e.id < key; });
  return at != list.end() && at->id == id ? static_cast<std::size_t>(at - list.begin()) : list.size();
}

Reply* find_reply(Exchanges& exchanges, const SeenExchange& exchange, int32_t rank) {
  for (std::size_t i = exchange.first; i < exchange.last; ++i) {
    if (exchanges.replies[i].rank == rank) return &exchanges.replies[i];
  }
  return nullptr;
}

void add_wait(Exchanges& exchanges, const Slice& slice) {
  const std::size_t at = find(exchanges.list, exchange_of(slice));
  if (at == exchanges.list.size()) return;
  SeenExchange& exchange = exchanges.list[at];
  const bool is_first = exchange.ready_ns == exchange.begin_ns;
  exchange.ready_ns = is_first ? slice.begin_ns : std::min(exchange.ready_ns, slice.begin_ns);
  Reply* reply = find_reply(exchanges, exchange, static_cast<int32_t>(slice.b));
  if (reply != nullptr) reply->wait_ns = std::min(reply->wait_ns, slice.begin_ns);
}

/// Rows in the place of bytes, in exchanges of which every worker's are recorded.
void count_rows(const Timeline& timeline, Exchanges& exchanges) {
  std::vector<int64_t> rows(exchanges.replies.size(), -1);
  for (const CounterSample& sample : timeline.counters) {
    if (sample.zone != Zone::kRankRows || sample.rank != 0) continue;
    const std::size_t at = find(exchanges.list, sample.at);
    if (at == exchanges.list.size()) continue;
    const Reply* reply = find_reply(exchanges, exchanges.list[at], static_cast<int32_t>(sample.b));
    if (reply != nullptr) rows[static_cast<std::size_t>(reply - exchanges.replies.data())] = sample.value;
  }
  for (const SeenExchange& exchange : exchanges.list) {
    const auto first = rows.begin() + static_cast<std::ptrdiff_t>(exchange.first);
    const auto last = rows.begin() + static_cast<std::ptrdiff_t>(exchange.last);
    if (std::find(first, last, -1) != last) continue;
    for (std::size_t i = exchange.first; i < exchange.last; ++i) exchanges.replies[i].rows = rows[i];
  }
}

/// Whether the coordinator waited for it all the way.
bool was_awaited(const Reply& reply) { return reply.posted_ns >= reply.wait_ns && reply.seen_ns > reply.wait_ns; }

void find_usual_back(std::size_t num_ranks, Exchanges& exchanges) {
  std::vector<std::vector<double>> backs(num_ranks), there(num_ranks);
  for (const Reply& reply : exchanges.replies) {
    const auto rank = static_cast<std::size_t>(reply.rank);
    there.at(rank).push_back(static_cast<double>(reply.arrived_ns - reply.free_ns));
    if (was_awaited(reply)) backs.at(rank).push_back(static_cast<double>(reply.seen_ns - reply.posted_ns));
  }
  double nearest = std::numeric_limits<double>::max();
  for (const std::vector<double>& values : backs) nearest = values.empty() ? nearest : std::min(nearest, median(values));
  for (std::size_t r = 0; r < num_ranks; ++r) {
    // The replies of a rank that was never waited for are taken to need what its rows do, and no more than the nearest rank's.
    const double usual = backs[r].empty() ? std::min(nearest, median(std::move(there[r]))) : median(std::move(backs[r]));
    exchanges.usual_back_ns.push_back(std::max<int64_t>(static_cast<int64_t>(usual), 0));
  }
  for (Reply& reply : exchanges.replies) {
    const int64_t usual_ns = exchanges.usual_back_ns[static_cast<std::size_t>(reply.rank)];
    const bool is_known = was_awaited(reply) || reply.seen_ns - reply.wait_ns >= std::max(usual_ns, kLookNs);
    reply.back_ns = is_known ? reply.seen_ns : std::min(reply.posted_ns + usual_ns, reply.seen_ns);
    reply.back_ns = std::max(reply.back_ns, reply.posted_ns);
  }
}

}  // namespace

Exchanges find_exchanges(const ReportInput& input) {
  const Timeline& timeline = input.timeline;
  Exchanges exchanges = pair_up(sort_messages(timeline));
  find_free_moments(input.capture.ranks.size(), exchanges);
  for (const Slice& slice : timeline.slices) {
    if (slice.zone == Zone::kWaitCombine && slice.layer >= 0) add_wait(exchanges, slice);
  }
  count_rows(timeline, exchanges);
  find_usual_back(input.capture.ranks.size(), exchanges);
  return exchanges;
}

}  // namespace ferry

#include "profiler/clock_sync.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "runtime/base/check.h"

namespace ferry {
namespace {

constexpr double kUseful = 4;                      // windows whose quickest took longer than this times the best say nothing
constexpr double kQuick = 1.25;                    // exchanges within this factor of the quickest count
constexpr int64_t kShortestBaseline = 50'000'000;  // ns; over less, noise would pass for drift
constexpr int64_t kWindow = 50'000'000;            // ns; the quickest of each window count, so that no burst goes unseen
constexpr double kWanderPpm = 50;                  // how far crystals may stray where no drift could be measured

/// The quickest exchanges of every window of time.
std::vector<ClockExchange> pick_quickest(std::span<const ClockExchange> exchanges) {
  std::vector<ClockExchange> sorted(exchanges.begin(), exchanges.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& x, const auto& y) { return x.rank_ns < y.rank_ns; });
  std::vector<ClockExchange> picked;
  for (auto first = sorted.begin(); first != sorted.end();) {
    const auto last = std::find_if(first, sorted.end(), [&](const auto& e) { return e.rank_ns - first->rank_ns > kWindow; });
    const auto quickest =
        std::min_element(first, last, [](const auto& x, const auto& y) { return x.round_trip_ns() < y.round_trip_ns(); });
    const double limit = kQuick * static_cast<double>(quickest->round_trip_ns());
    std::copy_if(first, last, std::back_inserter(picked),
                 [&](const auto& e) { return static_cast<double>(e.round_trip_ns()) <= limit; });
    first = last;
  }
  const auto quickest = std::min_element(picked.begin(), picked.end(),
                                         [](const auto& x, const auto& y) { return x.round_trip_ns() < y.round_trip_ns(); });
  const double useful = kUseful * static_cast<double>(quickest->round_trip_ns());
  std::erase_if(picked, [&](const auto& e) { return static_cast<double>(e.round_trip_ns()) > useful; });
  return picked;
}

/// Calls `fn(key, record)` for every transfer of that zone with that peer.
template <class Fn>
void for_each_transfer(const RankCapture& rank, Zone zone, int32_t peer, Fn&& fn) {
  for (const ThreadCapture& thread : rank.threads) {
    for (const SpanRecord& record : thread.records) {
      if (record.zone == zone && static_cast<int32_t>(record.b) == peer) fn(exchange_of(record), record);
    }
  }
}

/// The largest of (begin of a send - end of its receive) over all messages, on the coordinator's time; by so much the
/// receiver's clock is early at least.
int64_t largest_advance_ns(const RankCapture& sender, Zone send, const RankCapture& receiver, Zone receive) {
  const auto time = [](const RankCapture& rank, uint64_t ticks) {
    return rank.alignment.to_coordinator_ns(rank.ticks.to_ns(ticks));
  };
  std::map<ExchangeId, int64_t> sent_at;
  for_each_transfer(sender, send, receiver.rank,
                    [&](const ExchangeId& key, const SpanRecord& record) { sent_at[key] = time(sender, record.begin); });
  int64_t largest = std::numeric_limits<int64_t>::min();
  for_each_transfer(receiver, receive, sender.rank, [&](const ExchangeId& key, const SpanRecord& record) {
    const auto sent = sent_at.find(key);
    if (sent != sent_at.end()) largest = std::max(largest, sent->second - time(receiver, record.end));
  });
  return largest;
}

}  // namespace

std::vector<ClockExchange> find_exchanges(const RankCapture& coordinator, const RankCapture& rank) {
  struct Ends {
    int64_t sent = 0, received = 0, rank_received = 0, rank_sent = 0;  // ns of the clock that saw it; 0: not seen
  };
  std::map<ExchangeId, Ends> found;
  const auto note = [&](const RankCapture& who, Zone zone, const RankCapture& peer, bool is_end, int64_t Ends::*end) {
    for_each_transfer(who, zone, peer.rank, [&](const ExchangeId& key, const SpanRecord& record) {
      found[key].*end = who.ticks.to_ns(is_end ? record.end : record.begin);
    });
  };
  note(coordinator, Zone::kDispatchSend, rank, false, &Ends::sent);
  note(coordinator, Zone::kCombineReceive, rank, true, &Ends::received);
  note(rank, Zone::kDispatchReceive, coordinator, true, &Ends::rank_received);
  note(rank, Zone::kCombineSend, coordinator, false, &Ends::rank_sent);
  std::vector<ClockExchange> exchanges;
  for (const auto& [key, e] : found) {
    if (e.sent == 0 || e.received == 0 || e.rank_received == 0 || e.rank_sent == 0) continue;
    const int64_t half_stay = (e.rank_sent - e.rank_received) / 2;
    const ClockExchange exchange{
        .sent_ns = e.sent + half_stay, .rank_ns = e.rank_received + half_stay, .received_ns = e.received - half_stay};
    if (exchange.round_trip_ns() > 0) exchanges.push_back(exchange);
  }
  return exchanges;
}

void obey_causality(const RankCapture& coordinator, RankCapture& rank) {
  const int64_t least = largest_advance_ns(coordinator, Zone::kDispatchSend, rank, Zone::kDispatchReceive);
  const int64_t early = largest_advance_ns(rank, Zone::kCombineSend, coordinator, Zone::kCombineReceive);
  constexpr int64_t kNone = std::numeric_limits<int64_t>::min();
  if (least == kNone || early == kNone) return;
  const int64_t most = -early;  // the shift must lie in [least, most]
  const int64_t shift = least > most ? least + (most - least) / 2 : std::clamp<int64_t>(0, least, most);
  rank.alignment.offset_ns += static_cast<double>(shift);
  rank.alignment.bound_ns += std::abs(static_cast<double>(shift));
}

void keep_exchange(std::vector<ClockExchange>& exchanges, const ClockExchange& exchange) {
  if (exchanges.size() >= kMaxExchanges) {
    const std::size_t num_kept = (exchanges.size() + 1) / 2;
    for (std::size_t i = 1; i < num_kept; ++i) exchanges[i] = exchanges[2 * i];
    exchanges.resize(num_kept);
  }
  exchanges.push_back(exchange);
}

double ClockExchange::offset_ns() const {
  return static_cast<double>(sent_ns - rank_ns) + static_cast<double>(received_ns - sent_ns) / 2;
}

ClockAlignment fit_clock(std::span<const ClockExchange> exchanges) {
  FERRY_CHECK(!exchanges.empty());
  const std::vector<ClockExchange> picked = pick_quickest(exchanges);
  // An exchange says as much as its round trip is short.
  const auto weight_of = [](const ClockExchange& e) {
    const auto round_trip = static_cast<double>(std::max<int64_t>(e.round_trip_ns(), 1));
    return 1 / (round_trip * round_trip);
  };
  double weights = 0;
  for (const ClockExchange& e : picked) weights += weight_of(e);
  ClockAlignment line{.reference_ns = picked[picked.size() / 2].rank_ns, .num_samples = static_cast<int32_t>(picked.size())};
  double mean_x = 0, mean_y = 0, xx = 0, xy = 0;
  const auto x_of = [&](const ClockExchange& e) { return static_cast<double>(e.rank_ns - line.reference_ns); };
  // Offsets count from the first one's: between clocks of different hosts they are too large for a double's last digits.
  const double origin = picked.front().offset_ns();
  for (const ClockExchange& e : picked) {
    mean_x += weight_of(e) / weights * x_of(e);
    mean_y += weight_of(e) / weights * (e.offset_ns() - origin);
  }
  for (const ClockExchange& e : picked) {
    xx += weight_of(e) * (x_of(e) - mean_x) * (x_of(e) - mean_x);
    xy += weight_of(e) * (x_of(e) - mean_x) * (e.offset_ns() - origin - mean_y);
  }
  const int64_t baseline = picked.back().rank_ns - picked.front().rank_ns;
  const bool has_drift = baseline >= kShortestBaseline && xx > 0;
  line.drift = has_drift ? xy / xx : 0;
  line.offset_ns = origin + mean_y - line.drift * mean_x;
  for (const ClockExchange& e : picked) {
    const double stray = std::abs(line.offset_ns + line.drift * x_of(e) - e.offset_ns());
    line.bound_ns = std::max(line.bound_ns, stray + static_cast<double>(e.round_trip_ns()) / 2);
  }
  if (!has_drift) line.bound_ns += kWanderPpm * 1e-6 * static_cast<double>(baseline);
  return line;
}

}  // namespace ferry

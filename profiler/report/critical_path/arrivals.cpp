#include "profiler/report/critical_path/arrivals.h"

#include <algorithm>
#include <optional>

#include "profiler/report/lost_time/exchanges.h"
#include "profiler/report/statistics.h"
#include "profiler/report/timeline/step_slices.h"

namespace ferry {
namespace {

bool is_awaited(const Slice& wait, const Message& message) { return message.send_begin_ns >= wait.begin_ns; }

}  // namespace

Arrivals::Arrivals(const ReportInput& input, const std::vector<IntervalSet>& stops) : timeline_(input.timeline), stops_(stops) {
  for (std::size_t m = 0; m < timeline_.messages.size(); ++m) {
    const Message& message = timeline_.messages[m];
    messages_[{message.is_dispatch, message.source, message.target, exchange_of(message)}] = static_cast<int32_t>(m);
  }
  find_usual();
}

int32_t Arrivals::message_of(const Slice& wait) const {
  if (!is_peer_wait(wait.zone)) return -1;
  const int32_t rank = timeline_.lanes[static_cast<std::size_t>(wait.lane)].rank;
  const auto peer = static_cast<int32_t>(wait.b);
  const bool is_sent = wait.zone == Zone::kWaitSend;
  const auto found =
      messages_.find({wait.zone == Zone::kWaitDispatch, is_sent ? rank : peer, is_sent ? peer : rank, exchange_of(wait)});
  return found != messages_.end() ? found->second : -1;
}

void Arrivals::find_usual() {
  std::map<Way, std::vector<double>> flights;
  for (const Slice& slice : timeline_.slices) {
    const int32_t m = slice.zone == Zone::kWaitSend ? -1 : message_of(slice);
    if (m < 0) continue;
    const Message& message = timeline_.messages[static_cast<std::size_t>(m)];
    if (!is_awaited(slice, message)) continue;
    flights[{message.source, message.target}].push_back(static_cast<double>(slice.end_ns - message.send_begin_ns));
  }
  std::optional<int64_t> shortest;
  for (auto& [way, lengths] : flights) {
    const auto usual = std::max<int64_t>(static_cast<int64_t>(median(std::move(lengths))), 0);
    usual_ns_[way] = usual;
    shortest = std::min(shortest.value_or(usual), usual);
  }
  shortest_ns_ = shortest.value_or(0);
}

/// Of a way that nobody ever waited for the other direction's, else the shortest of all.
int64_t Arrivals::usual_ns(const Message& message) const {
  for (const Way& way : {Way{message.source, message.target}, Way{message.target, message.source}}) {
    if (const auto found = usual_ns_.find(way); found != usual_ns_.end()) return found->second;
  }
  return shortest_ns_;
}

int64_t Arrivals::arrival_ns(const Slice& wait, const Message& message) const {
  const int64_t usual_at_ns = message.send_begin_ns + usual_ns(message);
  const Interval flight{message.send_begin_ns, wait.end_ns};
  const bool is_stopped = total(clip(stops_.at(static_cast<std::size_t>(message.target)), flight)) > 0;
  const bool is_long = wait.duration_ns() >= std::max(usual_ns(message), kLookNs);
  const bool is_known = !is_stopped && (is_awaited(wait, message) || is_long);
  return is_known ? wait.end_ns : std::min(usual_at_ns, wait.end_ns);
}

}  // namespace ferry

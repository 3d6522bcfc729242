#include "profiler/recent_activity.h"

#include <algorithm>

#include "profiler/recorder.h"
#include "profiler/span.h"
#include "profiler/tick_clock.h"

namespace ferry {
namespace {

/// Ticks of the window, and what they are in seconds.
struct TickWindow {
  uint64_t begin, end;
  double seconds_per_tick;

  double seconds(const SpanRecord& record) const {
    const uint64_t first = std::max(record.begin, begin), last = std::min(record.end, end);
    return last > first ? static_cast<double>(last - first) * seconds_per_tick : 0;
  }
  bool has_end_of(const SpanRecord& record) const { return record.end >= begin && record.end <= end; }
};

RecentActivity::Peer& peer_of(RecentActivity& activity, uint32_t rank) {
  const auto number = static_cast<int32_t>(rank);
  const auto place = std::lower_bound(activity.peers.begin(), activity.peers.end(), number,
                                      [](const RecentActivity::Peer& peer, int32_t searched) { return peer.rank < searched; });
  if (place != activity.peers.end() && place->rank == number) return *place;
  return *activity.peers.insert(place, {.rank = number});
}

void add_step(RecentActivity& activity, const SpanRecord& record, const TickWindow& window) {
  const auto phase = static_cast<std::size_t>(plan_phase(record.b));
  if (phase >= activity.by_phase.size()) return;
  RecentActivity::Steps& steps = activity.by_phase[phase];
  ++steps.steps;
  steps.rows += record.a;
  steps.sequences += plan_sequences(record.b);
  steps.seconds += window.seconds(record);
}

void add(RecentActivity& activity, const SpanRecord& record, const TickWindow& window) {
  constexpr double kMicrosecond = 1e-6;
  switch (record.zone) {
    case Zone::kStep: return add_step(activity, record, window);
    case Zone::kDraft: activity.draft_s += window.seconds(record); break;
    case Zone::kCoreWait: activity.core_wait_s += record.a * kMicrosecond; break;
    case Zone::kNotRunning: activity.not_running_s += window.seconds(record); break;
    case Zone::kRankRows: peer_of(activity, record.b).rows += record.a; break;
    case Zone::kDispatchSend: peer_of(activity, record.b).bytes_out += record.a; break;
    case Zone::kWaitCombine: peer_of(activity, record.b).wait_s += window.seconds(record); break;
    case Zone::kCombineReceive: {
      RecentActivity::Peer& peer = peer_of(activity, record.b);
      ++peer.exchanges;
      peer.bytes_in += record.a;
      peer.round_trip_s += window.seconds(record);
      break;
    }
    default: break;
  }
}

}  // namespace

RecentActivity summarize(std::span<const SpanRecord> records, uint64_t begin, uint64_t end, double ns_per_tick) {
  constexpr double kNanosecond = 1e-9;
  const TickWindow window{.begin = begin, .end = end, .seconds_per_tick = ns_per_tick * kNanosecond};
  RecentActivity activity{.window_s = static_cast<double>(end - begin) * window.seconds_per_tick};
  for (const SpanRecord& record : records) {
    if (window.has_end_of(record)) add(activity, record, window);
  }
  return activity;
}

RecentActivity look_back(const Recorder& recorder, double seconds) {
  if (!is_traced(Zone::kStep)) return {};
  const double ns_per_tick = recorder.ticks().ns_per_tick;
  const uint64_t now = now_ticks();
  const auto length = static_cast<uint64_t>(seconds * 1e9 / ns_per_tick);
  std::vector<SpanRecord> records;
  const uint64_t begin = recorder.read_since(now - std::min(now, length), records);
  return summarize(records, std::min(begin, now), now, ns_per_tick);
}

}  // namespace ferry

#include "profiler/clock_sync.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/base/check.h"

namespace ferry {
namespace {

constexpr double kQuick = 1.25;                       // exchanges within this factor of the quickest count
constexpr int64_t kShortestBaseline = 1'000'000'000;  // ns; over less, noise would pass for drift
constexpr int64_t kWindow = 2'000'000'000;            // ns; the quickest of each window count, so that no stretch goes unseen
constexpr double kWanderPpm = 50;                     // how far crystals may stray where no drift could be measured

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
  return picked;
}

}  // namespace

double ClockExchange::offset_ns() const {
  return static_cast<double>(sent_ns - rank_ns) + static_cast<double>(received_ns - sent_ns) / 2;
}

ClockAlignment fit_clock(std::span<const ClockExchange> exchanges) {
  FERRY_CHECK(!exchanges.empty());
  const std::vector<ClockExchange> picked = pick_quickest(exchanges);
  const auto count = static_cast<double>(picked.size());
  ClockAlignment line{.reference_ns = picked[picked.size() / 2].rank_ns, .num_samples = static_cast<int32_t>(picked.size())};
  double mean_x = 0, mean_y = 0, xx = 0, xy = 0;
  const auto x_of = [&](const ClockExchange& e) { return static_cast<double>(e.rank_ns - line.reference_ns); };
  for (const ClockExchange& e : picked) mean_x += x_of(e) / count, mean_y += e.offset_ns() / count;
  for (const ClockExchange& e : picked) {
    xx += (x_of(e) - mean_x) * (x_of(e) - mean_x);
    xy += (x_of(e) - mean_x) * (e.offset_ns() - mean_y);
  }
  const int64_t baseline = picked.back().rank_ns - picked.front().rank_ns;
  const bool has_drift = baseline >= kShortestBaseline && xx > 0;
  line.drift = has_drift ? xy / xx : 0;
  line.offset_ns = mean_y - line.drift * mean_x;
  for (const ClockExchange& e : picked) {
    const double stray = std::abs(line.offset_ns + line.drift * x_of(e) - e.offset_ns());
    line.bound_ns = std::max(line.bound_ns, stray + static_cast<double>(e.round_trip_ns()) / 2);
  }
  if (!has_drift) line.bound_ns += kWanderPpm * 1e-6 * static_cast<double>(baseline);
  return line;
}

}  // namespace ferry

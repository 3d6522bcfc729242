#include "profiler/archive/retention.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <map>
#include <utility>

namespace ferry {
namespace {

constexpr int64_t kSecond = 1'000'000'000, kHour = 3600 * kSecond;
enum Class { kOrdinary, kSlowest, kAnomaly };
constexpr std::array<double, 3> kShares = {0.25, 0.25, 0.5};

/// What a step is kept as, and of the slowest of an hour how many are slower.
struct Standing {
  Class of = kOrdinary;
  int num_slower = 0;
};

std::vector<Standing> classify(std::span<const KeptSize> steps) {
  std::vector<Standing> standings(steps.size());
  std::map<std::pair<int64_t, Phase>, std::vector<std::size_t>> slowest;  // by hour and phase, slowest first
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (is_anomaly(steps[i].why)) {
      standings[i].of = kAnomaly;
      continue;
    }
    std::vector<std::size_t>& best = slowest[{steps[i].time_ns / kHour, steps[i].phase}];
    const auto place =
        std::ranges::upper_bound(best, steps[i].seconds, std::greater<>{}, [&](std::size_t s) { return steps[s].seconds; });
    best.insert(place, i);
    if (best.size() > static_cast<std::size_t>(kSlowestKept)) best.pop_back();
  }
  for (const auto& [where, best] : slowest) {
    for (std::size_t b = 0; b < best.size(); ++b) standings[best[b]] = {.of = kSlowest, .num_slower = static_cast<int>(b)};
  }
  return standings;
}

/// The steps of one class that are still there, by time.
struct Lane {
  std::vector<std::size_t> steps;
  int64_t bytes = 0;
};

/// Of those than which most others of their hour are slower the one that lies closest to its neighbours by its age; the newest
/// is never it, unless it is alone.
std::size_t most_crowded(const Lane& lane, std::span<const KeptSize> steps, std::span<const Standing> standings,
                         int64_t now_ns) {
  int most_slower = 0;
  for (const std::size_t step : lane.steps) most_slower = std::max(most_slower, standings[step].num_slower);
  std::size_t found = 0;
  while (standings[lane.steps[found]].num_slower < most_slower) ++found;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i + 1 < lane.steps.size(); ++i) {
    if (standings[lane.steps[i]].num_slower < most_slower) continue;
    const int64_t time = steps[lane.steps[i]].time_ns, next = steps[lane.steps[i + 1]].time_ns;
    const int64_t gap = i == 0 ? 2 * (next - time) : next - steps[lane.steps[i - 1]].time_ns;
    const double crowded = static_cast<double>(gap) / static_cast<double>(std::max(now_ns - time, int64_t{0}) + kSecond);
    if (crowded >= least) continue;
    least = crowded;
    found = i;
  }
  return found;
}

}  // namespace

std::vector<std::size_t> choose_to_drop(std::span<const KeptSize> steps, int64_t max_bytes, int64_t now_ns) {
  const std::vector<Standing> standings = classify(steps);
  std::array<Lane, 3> lanes;
  std::vector<std::size_t> dropped;
  int64_t total = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].time_ns < now_ns - kMaxAgeDays * 24 * kHour) {
      dropped.push_back(i);
      continue;
    }
    lanes[standings[i].of].steps.push_back(i);
    lanes[standings[i].of].bytes += steps[i].bytes;
    total += steps[i].bytes;
  }
  const auto room = static_cast<double>(max_bytes) * kAfterThinning;
  const bool is_over = total > max_bytes;
  while (is_over && static_cast<double>(total) > room) {
    const auto excess = [&](std::size_t c) {
      return lanes[c].steps.empty() ? -std::numeric_limits<double>::infinity()
                                    : static_cast<double>(lanes[c].bytes) - kShares[c] * room;
    };
    const std::size_t c = std::max({std::size_t{0}, std::size_t{1}, std::size_t{2}},
                                   [&](std::size_t a, std::size_t b) { return excess(a) < excess(b); });
    if (lanes[c].steps.empty()) break;
    const std::size_t at = most_crowded(lanes[c], steps, standings, now_ns), step = lanes[c].steps[at];
    lanes[c].steps.erase(lanes[c].steps.begin() + static_cast<std::ptrdiff_t>(at));
    lanes[c].bytes -= steps[step].bytes;
    total -= steps[step].bytes;
    dropped.push_back(step);
  }
  std::ranges::sort(dropped);
  return dropped;
}

}  // namespace ferry

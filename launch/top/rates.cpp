#include "launch/top/rates.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace ferry {
namespace {

double uptime(const LiveStatus& status) { return status.server.uptime_s; }

}  // namespace

std::optional<double> ratio(double part, double whole) { return whole > 0 ? std::optional(part / whole) : std::nullopt; }

int64_t count_of(const LiveStatus::Distribution& distribution) {
  return std::accumulate(distribution.counts.begin(), distribution.counts.end(), int64_t{0});
}

std::optional<Quantile> quantile(const LiveStatus::Distribution& distribution, double share) {
  const double wanted = static_cast<double>(count_of(distribution)) * share;
  if (wanted <= 0 || distribution.bounds.empty()) return std::nullopt;
  double before = 0;
  for (std::size_t bucket = 0; bucket < distribution.bounds.size(); ++bucket) {
    const auto inside = static_cast<double>(distribution.counts[bucket]);
    if (before + inside >= wanted) {
      if (bucket == 0) return Quantile{.value = distribution.bounds.front(), .is_bound = true};
      const double low = distribution.bounds[bucket - 1];
      return Quantile{.value = low + (distribution.bounds[bucket] - low) * ((wanted - before) / inside)};
    }
    before += inside;
  }
  return Quantile{.value = distribution.bounds.back()};
}

void LiveHistory::add(LiveStatus status) {
  if (!looks_.empty() && uptime(status) < uptime(now())) looks_.clear();
  looks_.push_back(std::move(status));
  while (uptime(now()) - uptime(looks_.front()) > kKeptSeconds) looks_.pop_front();
}

/// The newest look that is so much older than now, else the oldest.
const LiveStatus& LiveHistory::before(double age_s) const {
  const double limit = uptime(now()) - age_s;
  const auto found =
      std::find_if(looks_.rbegin(), looks_.rend(), [limit](const LiveStatus& look) { return uptime(look) <= limit; });
  return found == looks_.rend() ? looks_.front() : *found;
}

std::optional<double> LiveHistory::growth(const Reader& read, const Reader& by) const {
  const LiveStatus& then = before(kRateSeconds);
  return ratio(read(now()) - read(then), by(now()) - by(then));
}

std::optional<double> LiveHistory::rate(const Reader& read) const { return growth(read, uptime); }

std::vector<double> LiveHistory::line(const Reader& read) const {
  std::vector<double> values;
  for (std::size_t i = 1; i < looks_.size(); ++i) {
    const double seconds = uptime(looks_[i]) - uptime(looks_[i - 1]);
    values.push_back(ratio(read(looks_[i]) - read(looks_[i - 1]), seconds).value_or(0));
  }
  return values;
}

LiveStatus::Distribution LiveHistory::recent(LiveStatus::Distribution LiveStatus::Seconds::*which) const {
  LiveStatus::Distribution found = now().seconds.*which;
  const LiveStatus::Distribution& then = before(kLatencySeconds).seconds.*which;
  if (then.counts.size() != found.counts.size() || count_of(then) == count_of(found)) return found;
  for (std::size_t i = 0; i < found.counts.size(); ++i) found.counts[i] -= then.counts[i];
  found.sum -= then.sum;
  return found;
}

}  // namespace ferry

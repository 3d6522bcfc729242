#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "runtime/server/live/live_status.h"

// What two looks at a server say of the time between them. The page at / does the same (runtime/server/live/page/rates.js).

namespace ferry {

/// part / whole; nothing where whole is not above 0.
std::optional<double> ratio(double part, double whole);

/// Below which a share of some values lies.
struct Quantile {
  double value = 0;
  bool is_bound = false;  // it lies below `value`, in the first bucket, of which no more is known
};

/// Returns the quantile of a `share`, [0, 1], as Prometheus' histogram_quantile does: values of a bucket are taken for evenly
/// spread, except in the first one. Returns nothing without values.
std::optional<Quantile> quantile(const LiveStatus::Distribution& distribution, double share);
int64_t count_of(const LiveStatus::Distribution& distribution);

/// The looks at one server of the last two minutes.
class LiveHistory {
 public:
  static constexpr double kRateSeconds = 5, kLatencySeconds = 60, kKeptSeconds = 120;

  /// A look that is younger than the one before is of another server: it is the first.
  void add(LiveStatus status);
  bool empty() const { return looks_.empty(); }
  const LiveStatus& now() const { return looks_.back(); }

  using Reader = std::function<double(const LiveStatus&)>;
  /// By how much what `read` tells grew in the last seconds, in units of what `by` grew by; nothing if that did not.
  std::optional<double> growth(const Reader& read, const Reader& by) const;
  /// The same a second.
  std::optional<double> rate(const Reader& read) const;
  /// Its growth a second from each look to the next.
  std::vector<double> line(const Reader& read) const;
  /// What fell into a distribution within the last minute; since the server's start if nothing did.
  LiveStatus::Distribution recent(LiveStatus::Distribution LiveStatus::Seconds::*which) const;

 private:
  const LiveStatus& before(double age_s) const;

  std::deque<LiveStatus> looks_;
};

}  // namespace ferry

#include "runtime/actions/cost_curves.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "runtime/actions/nonnegative_fit.h"

namespace ferry {
namespace {

struct Bin {
  double sizes = 0, seconds = 0, count = 0;
  double size() const { return sizes / count; }
  double mean() const { return seconds / count; }
};

}  // namespace

Curve mean_curve(std::span<const SizedTime> times) {
  constexpr double kBinsPerOctave = 4;
  std::map<int64_t, Bin> bins;
  for (const SizedTime& t : times) {
    Bin& bin = bins[std::llround(kBinsPerOctave * std::log2(std::max(t.size, 1e-3)))];
    bin.sizes += t.size, bin.seconds += t.seconds, bin.count += 1;
  }
  // Pool adjacent violators: the closest rising curve in the sense of least squares (Ayer et al., 1955).
  struct Pool {
    std::vector<Bin> bins;
    double seconds = 0, count = 0;
    double mean() const { return seconds / count; }
  };
  std::vector<Pool> pools;
  for (const auto& [key, bin] : bins) {
    pools.push_back({{bin}, bin.seconds, bin.count});
    while (pools.size() > 1 && pools[pools.size() - 2].mean() > pools.back().mean()) {
      Pool last = std::move(pools.back());
      pools.pop_back();
      pools.back().bins.insert(pools.back().bins.end(), last.bins.begin(), last.bins.end());
      pools.back().seconds += last.seconds, pools.back().count += last.count;
    }
  }
  Curve curve;
  for (const Pool& pool : pools)
    for (const Bin& bin : pool.bins) curve.points.push_back({bin.size(), pool.mean()});
  return curve;
}

double slope_of(const Curve& curve) {
  constexpr double kApart = 1.5;
  if (curve.points.size() < 2) return 0;
  const Curve::Point first = curve.points.front(), last = curve.points.back();
  if (last.size < kApart * first.size) return 0;
  return std::max(0.0, last.seconds - first.seconds) / (last.size - first.size);
}

double slope_between(const Curve& small, const Curve& large) {
  if (small.points.empty() || large.points.empty()) return 0;
  const Curve::Point a = small.points.back(), b = large.points.front();
  constexpr double kApart = 1.5;
  return b.size < kApart * a.size ? 0 : std::max(0.0, b.seconds - a.seconds) / (b.size - a.size);
}

Curve with_slope(Curve curve, double slope, double least) {
  if (curve.points.empty()) return curve;
  const double own = slope_of(curve);
  const double used = own > 0 ? own : slope;
  const Curve::Point first = curve.points.front(), last = curve.points.back();
  const double start = std::clamp(first.seconds - used * first.size, std::min(least, first.seconds), first.seconds);
  if (first.size > 0) curve.points.insert(curve.points.begin(), {0, start});
  if (own == 0 && used > 0) curve.points.push_back({2 * last.size, last.seconds + used * last.size});
  return curve;
}

ExpertCosts fit_expert_calls(std::span<const ExpertCall> calls, double ExpertCall::*time) {
  std::vector<FitPoint> points;
  for (const ExpertCall& call : calls) {
    constexpr double kFewRows = 2;  // of an expert: where its weights are what takes time
    if (call.touched > 0 && call.rows <= kFewRows * call.touched)
      points.push_back({{call.touched, call.rows, 1}, call.*time, 1});
  }
  ExpertCosts costs;
  if (points.size() >= 8) costs.call = fit_nonnegative(points)[2];  // what touched experts explain as well is theirs
  std::vector<SizedTime> of_one;
  for (const ExpertCall& call : calls) {
    if (call.touched <= 0) continue;
    of_one.push_back({call.rows / call.touched, std::max(0.0, call.*time - costs.call) / call.touched});
  }
  costs.expert = mean_curve(of_one);
  return costs;
}

}  // namespace ferry

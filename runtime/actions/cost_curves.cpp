#include "runtime/actions/cost_curves.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "profiler/report/statistics.h"
#include "runtime/actions/nonnegative_fit.h"
#include "runtime/actions/roofs.h"

namespace ferry {
namespace {

struct Bin {
  double sizes = 0, seconds = 0, count = 0;  // sums
  double size() const { return sizes / count; }
  double mean() const { return seconds / count; }
};

constexpr double kBinsPerOctave = 4;
int64_t bin_of(double size) { return std::llround(kBinsPerOctave * std::log2(std::max(size, 1e-3))); }

/// By rank how many times as long as a middle one it takes for calls whose experts have as many rows. Such calls and the
/// factors explain each other, from round to round better; ranks that share no sizes with others are taken to be like them.
std::map<int32_t, double> find_factors(std::span<const ExpertCall> calls, double ExpertCall::*time) {
  constexpr int kRounds = 6;
  std::map<int64_t, std::map<int32_t, Bin>> bins;  // of touched experts and their seconds
  std::map<int32_t, double> factors;
  for (const ExpertCall& call : calls) {
    factors[call.rank] = 1;
    if (call.touched <= 0) continue;
    Bin& bin = bins[bin_of(call.rows / call.touched)][call.rank];
    bin.seconds += call.*time, bin.count += call.touched;
  }
  std::erase_if(bins, [](const auto& bin) { return bin.second.size() < 2; });
  for (int round = 0; round < kRounds && !bins.empty(); ++round) {
    std::map<int32_t, Bin> sums;  // of a rank: seconds, and in the place of the count what a middle one would take
    for (const auto& [size, ranks] : bins) {
      double even = 0;
      for (const auto& [rank, bin] : ranks) even += bin.mean() / factors[rank] / static_cast<double>(ranks.size());
      for (const auto& [rank, bin] : ranks) sums[rank].seconds += bin.seconds, sums[rank].count += bin.count * even;
    }
    std::vector<double> sorted;
    for (const auto& [rank, sum] : sums) sorted.push_back(sum.count > 0 ? sum.mean() : 1);
    std::ranges::sort(sorted);
    const double middle = sorted[(sorted.size() - 1) / 2];
    for (const auto& [rank, sum] : sums)
      if (sum.seconds > 0 && sum.count > 0 && middle > 0) factors[rank] = sum.mean() / middle;
  }
  return factors;
}

/// The closest rising curve through the bins' means.
Curve rising(const std::map<int64_t, Bin>& bins) {
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

/// What a call takes whatever it is given: what touched experts explain as well is theirs. Calls that something disturbed would
/// say more of that than of the call, so those that lie far off are left out of a second fit.
double call_seconds(std::span<const ExpertCall> calls, double ExpertCall::*time) {
  constexpr double kFewRows = 4;  // of an expert: where its weights are what takes time, and each row takes as long
  constexpr std::size_t kEnough = 8;
  constexpr double kFar = 3;  // times what half of them are off at most
  std::vector<FitPoint> points;
  for (const ExpertCall& call : calls)
    if (call.touched > 0 && call.rows <= kFewRows * call.touched)
      points.push_back({{call.touched, call.rows, 1}, call.*time, 1});
  if (points.size() < kEnough) return 0;
  const std::array<double, kFitTerms> all = fit_nonnegative(points);
  const auto off = [&](const FitPoint& p) { return std::abs(p.y - all[0] * p.x[0] - all[1] * p.x[1] - all[2]); };
  std::vector<double> distances;
  for (const FitPoint& p : points) distances.push_back(off(p));
  const double far = kFar * median(distances);
  std::erase_if(points, [&](const FitPoint& p) { return off(p) > far && far > 0; });
  return points.size() < kEnough ? all[2] : fit_nonnegative(points)[2];
}

}  // namespace

Curve mean_curve(std::span<const SizedTime> times) {
  std::map<int64_t, Bin> bins;
  for (const SizedTime& t : times) {
    Bin& bin = bins[bin_of(t.size)];
    bin.sizes += t.size, bin.seconds += t.seconds, bin.count += 1;
  }
  return rising(bins);
}

Curve typical_curve(std::span<const SizedTime> times) {
  struct Seen {
    double sizes = 0;
    std::vector<double> seconds;
  };
  std::map<int64_t, Seen> seen;
  for (const SizedTime& t : times) {
    Seen& bin = seen[bin_of(t.size)];
    bin.sizes += t.size, bin.seconds.push_back(t.seconds);
  }
  std::map<int64_t, Bin> bins;
  for (const auto& [key, bin] : seen) {
    const auto count = static_cast<double>(bin.seconds.size());
    bins[key] = {.sizes = bin.sizes, .seconds = count * median(bin.seconds), .count = count};
  }
  const Curve curve = rising(bins);
  double all = 0, typical = 0;
  for (const SizedTime& t : times) all += t.seconds, typical += curve.at(t.size);
  return typical > 0 ? curve.times(all / typical) : mean_curve(times);
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

Curve with_work(Curve seen, const PartWork& work, const WeightsRoof& roof) {
  if (seen.points.empty() || work.rows <= 0 || work.all <= 0) return seen;
  const Curve::Point first = seen.points.front(), last = seen.points.back();
  const double of_row = std::max(0.0, work.all - work.weights - work.once) / work.rows;
  const double weights_row = work.weights / work.rows;
  const double least = std::min(work.weights, roof.read > 0 ? roof.read : work.weights);
  const double multiplied = roof.row > 0 ? std::min(roof.row, weights_row) : 0;
  const auto modelled = [&](double rows) {
    const double fewer = std::max(least, weights_row * rows);
    const double weights = rows < work.rows ? fewer : std::max(work.weights, multiplied * rows);
    return work.once + weights + of_row * rows;
  };
  const auto beyond = [&](const Curve::Point& from, double rows) {
    return Curve::Point{rows, from.seconds * modelled(rows) / modelled(from.size)};
  };
  std::vector<Curve::Point> points;
  const double bend = weights_row > 0 ? least / weights_row : 0;  // until there, reading is what takes time
  if (first.size > 0) points.push_back(beyond(first, 0));
  if (bend > 0 && bend < first.size) points.push_back(beyond(first, bend));
  points.insert(points.end(), seen.points.begin(), seen.points.end());
  const double knee = multiplied > 0 ? work.weights / multiplied : 0;
  if (knee > last.size) points.push_back(beyond(last, knee));
  points.push_back(beyond(last, 2 * std::max({last.size, knee, kMostRows})));
  return {std::move(points)};
}

ExpertCosts fit_expert_calls(std::span<const ExpertCall> calls, double ExpertCall::*time) {
  ExpertCosts costs{.call = call_seconds(calls, time), .expert = {}};
  std::vector<SizedTime> of_one;
  for (const ExpertCall& call : calls) {
    if (call.touched <= 0) continue;
    of_one.push_back({call.rows / call.touched, std::max(0.0, call.*time - costs.call) / call.touched});
  }
  costs.expert = typical_curve(of_one);
  return costs;
}

RankedCosts fit_ranked_calls(std::span<const ExpertCall> calls, double ExpertCall::*time) {
  RankedCosts ranked{.costs = {}, .factors = find_factors(calls, time)};
  std::vector<ExpertCall> even(calls.begin(), calls.end());
  for (ExpertCall& call : even) call.*time /= ranked.factors.at(call.rank);
  ranked.costs = fit_expert_calls(even, time);
  return ranked;
}

Curve with_roof(Curve expert, double row_s) {
  if (expert.points.empty() || row_s <= 0) return expert;
  const Curve::Point last = expert.points.back();
  if (last.size <= 0 || last.seconds <= 0 || last.size >= kMostRows) return expert;
  row_s = std::min(last.seconds / last.size, row_s);
  const double knee = last.seconds / row_s;
  if (knee > last.size) expert.points.push_back({knee, last.seconds});
  expert.points.push_back({std::max(2 * knee, kMostRows), row_s * std::max(2 * knee, kMostRows)});
  return expert;
}

}  // namespace ferry

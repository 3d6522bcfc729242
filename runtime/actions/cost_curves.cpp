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

}  // namespace

Curve mean_curve(std::span<const SizedTime> times) {
  std::map<int64_t, Bin> bins;
  for (const SizedTime& t : times) {
    Bin& bin = bins[bin_of(t.size)];
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

RankedCosts fit_ranked_calls(std::span<const ExpertCall> calls, double ExpertCall::*time) {
  RankedCosts ranked{.costs = {}, .factors = find_factors(calls, time)};
  std::vector<ExpertCall> even(calls.begin(), calls.end());
  for (ExpertCall& call : even) call.*time /= ranked.factors.at(call.rank);
  ranked.costs = fit_expert_calls(even, time);
  return ranked;
}

Curve with_roof(Curve expert, double flop_per_row, double reached_flops_per_s) {
  constexpr double kMostRows = 8192;
  if (expert.points.empty() || flop_per_row <= 0 || reached_flops_per_s <= 0) return expert;
  const Curve::Point last = expert.points.back();
  if (last.size <= 0 || last.seconds <= 0 || last.size >= kMostRows) return expert;
  const double row_s = std::min(last.seconds / last.size, flop_per_row / reached_flops_per_s);
  const double knee = last.seconds / row_s;
  if (knee > last.size) expert.points.push_back({knee, last.seconds});
  expert.points.push_back({std::max(2 * knee, kMostRows), row_s * std::max(2 * knee, kMostRows)});
  return expert;
}

}  // namespace ferry

#include "runtime/actions/worker_overlap.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "runtime/actions/cost_curves.h"

namespace ferry {
namespace {

const ExpertCall* find_call(std::span<const ExpertCall> calls, int32_t rank, const ExchangeId& id) {
  const auto key = [](const ExpertCall& call) { return std::pair(call.rank, call.id); };
  const auto found = std::ranges::lower_bound(calls, std::pair(rank, id), {}, key);
  return found != calls.end() && key(*found) == std::pair(rank, id) ? &*found : nullptr;
}

// The figures of a call. What it takes by itself is something whatever it is, and something for each expert and each row.
enum : std::size_t { kOnce, kTouched, kRows, kTook, kOverlap, kExpected, kFigures };
constexpr std::size_t kWork = kTook;  // so many figures say what a call has to do
using Figures = std::array<double, kFigures>;

/// Weighted sums of products of each two figures of calls.
struct Products {
  std::array<Figures, kFigures> sums{};
  double count = 0;

  void add(const Figures& figures, double weight) {
    for (std::size_t i = 0; i < kFigures; ++i)
      for (std::size_t j = 0; j < kFigures; ++j) sums[i][j] += weight * figures[i] * figures[j];
    count += 1;
  }
  /// Leaves of the other figures what work does not explain: Gauss and Jordan's steps.
  void explain_by_work() {
    constexpr double kIndependent = 1e-9;  // of what the figure's square was
    const auto before = sums;
    for (std::size_t k = 0; k < kWork; ++k) {
      Figures& row = sums[k];
      const double pivot = row[k];
      if (!(pivot > kIndependent * before[k][k])) {
        row.fill(0);  // others say the same
        continue;
      }
      for (double& x : row) x /= pivot;
      for (std::size_t i = 0; i < kFigures; ++i) {
        const double factor = sums[i][k];
        for (std::size_t j = 0; i != k && j < kFigures; ++j) sums[i][j] -= factor * row[j];
      }
    }
  }
};

}  // namespace

WorkerOverlap::WorkerOverlap(const ReportInput& input, const Exchanges& exchanges, std::span<const ExpertCall> calls) {
  std::map<std::string, std::size_t> hosts;
  const std::map<int32_t, double> factors = fit_ranked_calls(calls, &ExpertCall::seconds).factors;
  firsts_.push_back(0);
  for (const SeenExchange& exchange : exchanges.list) {
    for (const Reply& reply : exchanges.replies_of(exchange)) {
      const RankCapture& rank = input.capture.ranks.at(static_cast<std::size_t>(reply.rank));
      Share share{.rank = static_cast<std::size_t>(reply.rank),
                  .host = hosts.try_emplace(rank.boot_id, hosts.size()).first->second,
                  .arrived = 1e-9 * static_cast<double>(reply.arrived_ns),
                  .took = reply.rows > 0 ? 1e-9 * static_cast<double>(reply.work_ns()) : 0};
      const ExpertCall* call = reply.rows > 0 ? find_call(calls, reply.rank, exchange.id) : nullptr;
      if (call != nullptr && call->touched > 0) {
        share.touched = call->touched, share.rows = call->rows;
        share.factor = factors.at(call->rank);
      }
      shares_.push_back(share);
    }
    firsts_.push_back(shares_.size());
  }
  find_slowing();
}

/// How many other workers one has on its host, on average.
double WorkerOverlap::others_of(std::span<const Share> all) {
  std::map<std::size_t, double> hosts;
  for (const Share& share : all) hosts[share.host] += 1;
  double others = 0;
  for (const auto& [host, workers] : hosts) others += workers * (workers - 1);
  return others / static_cast<double>(all.size());
}

double WorkerOverlap::overlap_of(const Share& share, std::span<const Share> all, double Share::*seconds) {
  double sum = 0;
  for (const Share& other : all) {
    if (&other == &share || other.host != share.host) continue;
    const double from = std::max(share.arrived, other.arrived);
    sum += std::max(0.0, std::min(share.arrived + share.*seconds, other.arrived + other.*seconds) - from);
  }
  return sum;
}

/// What calls of such work usually take, whatever is beside them. Calls of unlike sizes count alike, as their experts say.
void WorkerOverlap::expect(bool are_alike) {
  Products calls;
  for (const Share& share : shares_) {
    if (share.touched <= 0) continue;
    const double factor = are_alike ? 1 : share.factor;
    calls.add({factor, factor * share.touched, factor * share.rows, share.took}, 1 / (share.touched * share.touched));
  }
  calls.explain_by_work();
  const auto of = [&](std::size_t work) { return calls.sums[work][kTook]; };
  for (Share& share : shares_) {
    const double factor = are_alike ? 1 : share.factor;
    share.expected = share.touched > 0 ? factor * (of(kOnce) + of(kTouched) * share.touched + of(kRows) * share.rows) : 0;
  }
}

/// took = factor * work + slowing * overlap. A call that takes longer for any reason overlaps more for that alone, so that the
/// overlap to be expected of calls of such work stands in as an instrument (two-stage least squares): slowing =
/// sum(expected * took) / sum(expected * overlap), of what work does not explain.
WorkerOverlap::Fit WorkerOverlap::fit(bool are_alike) {
  expect(are_alike);
  Products calls;
  for (std::size_t i = 0; i + 1 < firsts_.size(); ++i) {
    for (const std::span<const Share> shares = shares_of(i); const Share& share : shares) {
      if (share.expected <= 0) continue;
      const double factor = are_alike ? 1 : share.factor;
      const double seen = overlap_of(share, shares, &Share::took), expected = overlap_of(share, shares, &Share::expected);
      calls.add({factor, factor * share.touched, factor * share.rows, share.took, seen, expected},
                1 / (share.touched * share.touched));
    }
  }
  calls.explain_by_work();
  const auto& sums = calls.sums;
  Fit fit{.left = sums[kTook][kTook]};
  const double told = sums[kExpected][kOverlap], free = calls.count - kWork - 1;
  if (!(told > 0) || free <= 0) return fit;
  fit.slowing = sums[kExpected][kTook] / told;
  fit.left += fit.slowing * (fit.slowing * sums[kOverlap][kOverlap] - 2 * sums[kTook][kOverlap]);
  fit.error = std::sqrt(std::max(0.0, fit.left) / free * sums[kExpected][kExpected]) / told;
  return fit;
}

/// Ranks of one host are alike, unless their calls are told better by each rank's own speed.
void WorkerOverlap::find_slowing() {
  constexpr double kSurely = 2;  // standard errors
  const Fit alike = fit(true), unlike = fit(false);
  are_alike_ = alike.left <= unlike.left;
  const Fit& best = are_alike_ ? alike : unlike;
  double others = 0;
  for (std::size_t i = 0; i + 1 < firsts_.size(); ++i) others = std::max(others, others_of(shares_of(i)));
  if (best.slowing > kSurely * best.error) slowing_ = std::min(best.slowing, 1 / (1 + others));
}

double WorkerOverlap::imbalance(std::size_t i) const {
  const std::span<const Share> shares = shares_of(i);
  double latest = -std::numeric_limits<double>::infinity(), last = latest, undisturbed = 0;
  for (const Share& share : shares) {
    if (share.took <= 0) continue;
    latest = std::max(latest, share.arrived), last = std::max(last, share.arrived + share.took);
    undisturbed += std::max(0.0, share.took - slowing_ * overlap_of(share, shares, &Share::took));
  }
  if (last <= latest) return 0;
  const double even = undisturbed / static_cast<double>(shares.size());
  return last - latest - even / (1 - slowing_ * others_of(shares));  // each is slowed all the time by all others of its host
}

}  // namespace ferry

#include "moe/routing/drawn_routing.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace ferry {
namespace {

/// splitmix64 (Steele, Lea and Flood 2014): the same on every machine, as std's distributions are not.
class Draw {
 public:
  explicit Draw(uint64_t seed) : state_(seed) {}

  uint64_t word() {
    uint64_t x = state_ += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
  }
  /// Above 0, below 1.
  double uniform() { return (static_cast<double>(word() >> 11) + 0.5) * 0x1p-53; }

 private:
  uint64_t state_;
};

/// [num_experts] logarithms of popularity, in an order of the layer's own.
std::vector<double> draw_popularity(const RoutingShape& shape, double slope, Draw& draw) {
  std::vector<double> log_popularity(static_cast<std::size_t>(shape.num_experts));
  for (std::size_t e = 0; e < log_popularity.size(); ++e) log_popularity[e] = -slope * std::log(static_cast<double>(e + 1));
  for (std::size_t e = log_popularity.size(); e > 1; --e) std::swap(log_popularity[e - 1], log_popularity[draw.word() % e]);
  return log_popularity;
}

/// [num_experts] logarithms of the rates at which experts come to be chosen as often as `counts` has them.
std::vector<double> popularity_of(std::span<const int64_t> counts, int64_t top_k) {
  constexpr double kMost = 0.999, kLeast = 1e-9;  // of an expert's probability
  double sum = 0;
  for (const int64_t count : counts) sum += static_cast<double>(count);
  std::vector<double> log_popularity;
  for (const int64_t count : counts) {
    const double share = sum > 0 ? static_cast<double>(top_k) * static_cast<double>(count) / sum : 0.5;
    log_popularity.push_back(std::log(-std::log1p(-std::clamp(share, kLeast, kMost))));
  }
  return log_popularity;
}

RoutingTrace draw_rows(const RoutingShape& shape, std::span<const std::vector<double>> popularity, const DrawnRouting& how,
                       Draw& draw) {
  RoutingTrace trace{.shape = shape};
  std::vector<double> score(static_cast<std::size_t>(shape.num_experts));
  std::vector<uint16_t> order(score.size());
  const auto add = [&](RoutingPhase phase, int64_t num_rows) {
    trace.steps.push_back({.id = std::ssize(trace.steps), .phase = phase, .num_rows = num_rows, .first = trace.ids.size()});
    for (const std::vector<double>& layer : popularity) {
      for (int64_t r = 0; r < num_rows; ++r) {
        for (std::size_t e = 0; e < score.size(); ++e) score[e] = layer[e] - std::log(-std::log(draw.uniform()));
        std::iota(order.begin(), order.end(), uint16_t{0});
        std::partial_sort(order.begin(), order.begin() + shape.top_k, order.end(),
                          [&](uint16_t a, uint16_t b) { return score[a] != score[b] ? score[a] > score[b] : a < b; });
        trace.ids.insert(trace.ids.end(), order.begin(), order.begin() + shape.top_k);
      }
    }
  };
  for (int64_t i = 0; i < how.decode_steps; ++i) add(RoutingPhase::kDecode, how.decode_rows);
  if (how.prefill_rows > 0) add(RoutingPhase::kPrefill, how.prefill_rows);
  return trace;
}

}  // namespace

RoutingTrace draw_routing(const RoutingShape& shape, const DrawnRouting& how) {
  Draw draw(how.seed);
  std::vector<std::vector<double>> popularity;
  for (int64_t l = 0; l < shape.num_layers(); ++l) popularity.push_back(draw_popularity(shape, how.slope, draw));
  return draw_rows(shape, popularity, how, draw);
}

RoutingTrace draw_routing_like(const RoutingShape& shape, std::span<const std::vector<int64_t>> counts,
                               const DrawnRouting& how) {
  Draw draw(how.seed);
  std::vector<std::vector<double>> popularity;
  for (const std::vector<int64_t>& layer : counts) popularity.push_back(popularity_of(layer, shape.top_k));
  return draw_rows(shape, popularity, how, draw);
}

}  // namespace ferry

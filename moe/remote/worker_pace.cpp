#include "moe/remote/worker_pace.h"

#include <algorithm>
#include <cmath>

namespace ferry {
namespace {

constexpr double kForgets = 0.98;      // of the slowest time, with each reply
constexpr double kKeeps = 0.99;        // of the recent sums, with each reply,
constexpr double kKeepsAtFirst = 0.5;  // and with those before anything is known
constexpr double kMostOfUsual = 4;
constexpr double kSpeedStep = 0.1;
constexpr double kLeastSpeed = 0.0625, kMostSpeed = 4;

double seconds(std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

void WorkerPace::learn(double cost, std::chrono::nanoseconds elapsed, std::chrono::nanoseconds computed) {
  if (cost <= 0) return;
  slowest_s_ = std::max(slowest_s_ * kForgets, seconds(elapsed) / cost);
  const double most_s = knows() ? kMostOfUsual * seconds_per_cost() * cost : seconds(computed);
  const double keeps = knows() ? kKeeps : kKeepsAtFirst;
  recent_s_ = keeps * recent_s_ + std::min(seconds(computed), most_s);
  recent_cost_ = keeps * recent_cost_ + cost;
  ++num_replies_;
}

std::chrono::nanoseconds WorkerPace::usual(double cost) const {
  return std::chrono::nanoseconds(static_cast<int64_t>(slowest_s_ * cost * 1e9));
}

std::vector<double> relative_speeds(std::span<const double> seconds_per_cost) {
  std::vector<double> known;
  for (const double s : seconds_per_cost) {
    if (s > 0) known.push_back(s);
  }
  std::vector<double> speeds(seconds_per_cost.size(), 1.0);
  if (known.empty()) return speeds;
  const auto middle = known.begin() + std::ssize(known) / 2;
  std::ranges::nth_element(known, middle);
  for (std::size_t w = 0; w < speeds.size(); ++w) {
    if (seconds_per_cost[w] <= 0) continue;
    const double speed = std::round(*middle / seconds_per_cost[w] / kSpeedStep) * kSpeedStep;
    speeds[w] = std::clamp(speed, kLeastSpeed, kMostSpeed);
  }
  return speeds;
}

}  // namespace ferry

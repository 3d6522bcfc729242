#include "runtime/plan/expert_fit.h"

#include <algorithm>
#include <map>

namespace ferry {

void fit_experts(std::span<const ExpertPoint> points, RankCosts& costs) {
  std::map<double, ExpertPoint> fewest, most;  // by rows
  for (const ExpertPoint& p : points) {
    const auto [low, is_low_new] = fewest.emplace(p.rows, p);
    if (!is_low_new && p.experts < low->second.experts) low->second = p;
    const auto [high, is_high_new] = most.emplace(p.rows, p);
    if (!is_high_new && p.experts > high->second.experts) high->second = p;
  }
  const ExpertPoint a = fewest.begin()->second, b = most.begin()->second;
  costs.expert_call = 0;
  if (b.experts > a.experts) {
    const double of_one = std::max(0.0, (b.seconds - a.seconds) / (b.experts - a.experts));
    costs.expert_call = std::clamp(a.seconds - of_one * a.experts, 0.0, a.seconds);
  }
  costs.expert = {};
  for (const auto& [rows, p] : most)
    costs.expert.points.push_back({rows, std::max(0.0, p.seconds - costs.expert_call) / p.experts});
}

}  // namespace ferry

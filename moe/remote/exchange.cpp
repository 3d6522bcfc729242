#include "moe/remote/exchange.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace ferry {

bool Flight::is_answered(const Exchange& exchange) const {
  if (exchange.state == Exchange::State::kNone || exchange.state == Exchange::State::kDone) return true;
  if (exchange.cover < 0) return false;
  const Wave& cover = waves[static_cast<std::size_t>(exchange.cover)];
  return std::ranges::all_of(cover.exchanges, [this](const Exchange& other) { return is_answered(other); });
}

bool Flight::is_complete() const {
  return std::ranges::all_of(waves.front().exchanges, [this](const Exchange& exchange) { return is_answered(exchange); });
}

std::vector<int32_t> Flight::experts_of(const Wave& wave, const Exchange& exchange) const {
  std::vector<int32_t> experts(topk_idx.size(), kNoExpert);
  const auto idx = static_cast<int32_t>(&exchange - wave.exchanges.data());
  for (std::size_t i = 0; i < experts.size(); ++i) {
    if (wave.plan.slots[i].rank_idx == idx) experts[i] = topk_idx[i];
  }
  return experts;
}

FoundRow Flight::find(std::size_t slot) const {
  const Wave* wave = &waves.front();
  while (true) {
    const SlotRow at = wave->plan.slots[slot];
    const Exchange& exchange = wave->exchanges[static_cast<std::size_t>(at.rank_idx)];
    if (exchange.state == Exchange::State::kDone) return {&exchange, at.row};
    FERRY_CHECK_GE(exchange.cover, 0);
    wave = &waves[static_cast<std::size_t>(exchange.cover)];
  }
}

}  // namespace ferry

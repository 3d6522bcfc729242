#include "runtime/schedule/fair_turns.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace ferry {

void FairTurns::keep(std::span<const int32_t> asking) {
  for (const int32_t number : asking) {
    if (std::cmp_greater_equal(number, accounts_.size())) accounts_.resize(static_cast<std::size_t>(number) + 1);
    account(number).asks = true;
  }
  std::erase_if(round_, [this](int32_t number) {
    if (account(number).asks) return false;
    account(number) = {};
    return true;
  });
  for (const int32_t number : asking) {
    if (!account(number).is_in_round) round_.push_back(number);
    account(number).is_in_round = true;
    account(number).asks = false;
  }
}

void FairTurns::leave() {
  account(next()) = {};
  round_.pop_front();
}

bool FairTurns::next_may_take(int64_t tokens) {
  FERRY_CHECK(!round_.empty());
  Account& front = account(next());
  if (!front.has_turn) front.deficit += turn_tokens_;
  front.has_turn = front.deficit >= tokens;
  if (front.has_turn) return true;
  round_.push_back(round_.front());
  round_.pop_front();
  return false;
}

int64_t FairTurns::deficit_of(int32_t account) const {
  return std::cmp_less(account, accounts_.size()) ? accounts_[static_cast<std::size_t>(account)].deficit : 0;
}

}  // namespace ferry

#include "runtime/schedule/account_numbers.h"

#include "runtime/base/check.h"

namespace ferry {

int32_t AccountNumbers::enter(const std::string& account) {
  const auto [entry, is_new] = entries_.try_emplace(account);
  if (is_new && free_.empty()) {
    entry->second.number = static_cast<int32_t>(entries_.size()) - 1;
  } else if (is_new) {
    entry->second.number = free_.back();
    free_.pop_back();
  }
  ++entry->second.num_open;
  return entry->second.number;
}

void AccountNumbers::leave(const std::string& account) {
  const auto entry = entries_.find(account);
  FERRY_CHECK(entry != entries_.end());
  if (--entry->second.num_open > 0) return;
  free_.push_back(entry->second.number);
  entries_.erase(entry);
}

}  // namespace ferry

#include "runtime/schedule/token_counts.h"

#include <algorithm>

namespace ferry {

void TokenCounts::catch_up(const RowHistory& history) {
  if (num_counted_ == 0) take_prompt(history.tokens.first(static_cast<std::size_t>(history.num_prompt)));
  for (; num_counted_ < history.size(); ++num_counted_) add(history[num_counted_]);
}

void TokenCounts::take_prompt(std::span<const TokenId> prompt) {
  std::vector<TokenId> ids(prompt.begin(), prompt.end());
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  for (const TokenId id : ids) counts_.push_back({.id = id});
  num_counted_ = std::ssize(prompt);
}

void TokenCounts::add(TokenId id) {
  const auto at = std::ranges::lower_bound(counts_, id, {}, &TokenCount::id);
  if (at != counts_.end() && at->id == id) {
    ++at->num_generated;
  } else {
    counts_.insert(at, {.id = id, .num_generated = 1});
  }
}

}  // namespace ferry

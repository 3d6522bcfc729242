#include "runtime/schedule/ngram_drafts.h"

#include <algorithm>
#include <optional>

namespace ferry {
namespace {

constexpr std::size_t kLongestSuffix = 4, kShortestSuffix = 2;  // tokens

/// Where the text went on the last time that its last `length` tokens stood in it.
std::optional<std::size_t> find_continuation(std::span<const TokenId> tokens, std::size_t length) {
  if (tokens.size() <= length) return std::nullopt;
  const std::span<const TokenId> suffix = tokens.last(length), before = tokens.first(tokens.size() - 1);
  const auto place = std::find_end(before.begin(), before.end(), suffix.begin(), suffix.end());
  if (place == before.end()) return std::nullopt;
  return static_cast<std::size_t>(place - before.begin()) + length;
}

}  // namespace

void ngram_drafts(std::span<const TokenId> tokens, int64_t max_drafts, std::vector<TokenId>& drafts) {
  drafts.clear();
  for (std::size_t length = kLongestSuffix; length >= kShortestSuffix; --length) {
    const std::optional<std::size_t> first = find_continuation(tokens, length);
    if (!first) continue;
    const std::size_t period = tokens.size() - *first;
    for (std::size_t i = 0; i < static_cast<std::size_t>(max_drafts); ++i) drafts.push_back(tokens[*first + i % period]);
    return;
  }
}

}  // namespace ferry

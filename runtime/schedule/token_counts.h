#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/types.h"

namespace ferry {

/// The tokens that a row of logits comes behind.
struct RowHistory {
  std::span<const TokenId> tokens;  // the prompt and what was generated
  std::span<const TokenId> drafts;  // of the row's sequence, which the row comes behind as well
  int64_t num_prompt = 0;

  int64_t size() const { return std::ssize(tokens) + std::ssize(drafts); }
  int64_t num_generated() const { return size() - num_prompt; }
  TokenId operator[](int64_t i) const {
    const auto at = static_cast<std::size_t>(i);
    return at < tokens.size() ? tokens[at] : drafts[at - tokens.size()];
  }
};

/// How often a token is in the completion; 0: only in the prompt.
struct TokenCount {
  TokenId id = 0;
  int32_t num_generated = 0;
};

/// The distinct tokens of a growing sequence, for penalties. Each token is counted once, however many rows ask: what is counted
/// must still be in the histories that come later, as right drafts are, and a row behind a draft is only asked for once the
/// draft was chosen.
class TokenCounts {
 public:
  /// Counts what is new of `history`.
  void catch_up(const RowHistory& history);

  /// In order of id.
  std::span<const TokenCount> counts() const { return counts_; }

 private:
  void take_prompt(std::span<const TokenId> prompt);
  void add(TokenId id);

  std::vector<TokenCount> counts_;
  int64_t num_counted_ = 0;  // tokens
};

}  // namespace ferry

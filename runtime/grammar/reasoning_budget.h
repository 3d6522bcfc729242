#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "runtime/schedule/token_grammar.h"
#include "runtime/text/reply/reply_markers.h"

namespace ferry {

/// A thought that ends in time: of a completion that begins inside one, </think> is at the latest token number `budget` (at
/// least 1). Before and behind it another grammar may hold, which has to let </think> come.
class ReasoningBudget final : public TokenGrammar {
 public:
  /// `inner` may be null. Throws Error{kInvalidArgument} if the vocabulary has no </think>.
  ReasoningBudget(std::shared_ptr<TokenGrammar> inner, int64_t budget, const ReplyMarkers& markers);

  bool fill_mask(std::span<uint32_t> bits) override;
  bool accept(TokenId id) override;
  void rollback(int64_t num_tokens) override;
  bool is_terminated() const override { return inner_ != nullptr && inner_->is_terminated(); }

 private:
  /// Whether the next token has to end the thought.
  bool is_spent() const { return !end_ && num_tokens_ + 1 >= budget_; }

  const std::shared_ptr<TokenGrammar> inner_;
  const int64_t budget_;
  TokenId think_end_ = -1;
  std::optional<TokenId> call_begin_;  // ends a thought as well
  int64_t num_tokens_ = 0;
  std::optional<int64_t> end_;  // tokens up to and with the one that ended the thought
};

}  // namespace ferry

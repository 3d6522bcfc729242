#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runtime/schedule/token_grammar.h"

namespace ferry {

/// A grammar that holds once a thought has ended: before </think> every token may come but those that end the completion, then
/// line breaks, as the family's template writes them, and then what the grammar lets come.
class BehindReasoning final : public TokenGrammar {
 public:
  struct Tokens {
    int64_t vocab_size = 0;
    TokenId think_end = -1;
    std::optional<TokenId> call_begin;  // ends a thought as well, and is the grammar's first token
    std::vector<TokenId> line_breaks;   // that may stand between </think> and the rest
    std::vector<TokenId> stop_ids;
  };

  BehindReasoning(std::unique_ptr<TokenGrammar> grammar, Tokens tokens);

  bool fill_mask(std::span<uint32_t> bits) override;
  bool accept(TokenId id) override;
  void rollback(int64_t num_tokens) override;
  bool is_terminated() const override { return phase() == Phase::kGrammar && grammar_->is_terminated(); }

 private:
  enum class Phase : uint8_t { kReasoning, kLineBreaks, kGrammar };
  Phase phase() const { return phases_.empty() ? Phase::kReasoning : phases_.back(); }

  std::unique_ptr<TokenGrammar> grammar_;
  Tokens tokens_;
  std::vector<Phase> phases_;  // behind each token; those of kGrammar are the grammar's tokens
};

}  // namespace ferry

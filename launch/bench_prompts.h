#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/types.h"
#include "runtime/text/tokenizer.h"

// What sequences of a benchmark go on from. Texts that a model can continue, no two alike: with drafts a step's cost depends on
// what the model says, and a batch of equal sequences would ask for the same experts.

namespace ferry {

/// The openings of `num_sequences` texts, of 1 ‥ `max_tokens` tokens each, no two alike (but where `max_tokens` are too few to
/// tell them apart).
std::vector<std::vector<TokenId>> opening_prompts(const Tokenizer& tokenizer, int64_t num_sequences, int64_t max_tokens);

/// Pieces of `text`, `max_tokens` tokens each, whose first tokens lie as far apart as the text allows. Throws
/// Error{kInvalidArgument} for a text that has fewer than `max_tokens` + `num_sequences` - 1 tokens.
std::vector<std::vector<TokenId>> text_prompts(const Tokenizer& tokenizer, const std::string& text, int64_t num_sequences,
                                               int64_t max_tokens);

/// Ids that are a fixed function of place, for a checkpoint without a tokenizer: no text, so what follows cannot be guessed as
/// well as that of one.
std::vector<std::vector<TokenId>> numbered_prompts(int64_t vocab_size, int64_t num_sequences, int64_t num_tokens);

}  // namespace ferry

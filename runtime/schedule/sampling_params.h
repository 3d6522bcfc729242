#pragma once

#include <cstdint>

#include "runtime/schedule/request.h"

namespace ferry {

// What the lists of a request may hold, so that no request costs a step much time or the engine much memory.
inline constexpr int64_t kMaxStops = 1024;  // stop ids, and stop strings: every new character is compared with all of these
inline constexpr int64_t kMaxLogitBiases = 1024;
inline constexpr int64_t kMaxBadWords = 1024;
inline constexpr int64_t kMaxBadWordTokens = 64;  // of each
/// Of all tokens of a prompt, and of all of a completion: logprobs that are told beside those of the tokens themselves, 12
/// bytes each while a reader has not taken them.
inline constexpr int64_t kMaxTopLogprobs = int64_t{1} << 23;

/// Throws Error{kInvalidArgument} that names the first bad field, its value and what is allowed: all that can be told without
/// the model. Ids are not negative here.
void validate_sampling(const SamplingParams& params);

/// What the model and the prompt make of a request.
struct SamplingBounds {
  int64_t vocab_size = 0;      // ids are [0, vocab_size)
  int64_t num_prompt = 0;      // tokens
  int64_t max_completion = 0;  // likewise, as far as there is room for max_tokens
};

/// The same for what needs those: ids, how many are allowed, and how many logprobs are told. `params` passed the other one.
void validate_sampling(const SamplingParams& params, const SamplingBounds& bounds);

}  // namespace ferry

#include "runtime/schedule/sampling_params.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/error.h"

namespace ferry {
namespace {

constexpr float kMaxPenalty = 2.0F, kMaxBias = 100.0F;

template <class T>
[[noreturn]] void refuse(const std::string& field, T value, const std::string& allowed) {
  throw_invalid(field + " is " + std::to_string(value) + "; allowed: " + allowed);
}

std::string indexed(const char* field, std::size_t i) { return std::string(field) + "[" + std::to_string(i) + "]"; }

/// NaN is in no range.
void require_between(const std::string& field, float value, float lowest, float highest, const std::string& allowed) {
  if (!(value >= lowest && value <= highest)) refuse(field, value, allowed);
}

void require_count(const std::string& field, std::size_t count, int64_t most) {
  if (std::cmp_less_equal(count, most)) return;
  throw_invalid(field + " has " + std::to_string(count) + " entries; allowed: at most " + std::to_string(most));
}

void require_positive_ids(const char* field, std::span<const TokenId> ids) {
  const auto bad = std::ranges::find_if(ids, [](TokenId id) { return id < 0; });
  if (bad != ids.end()) refuse(indexed(field, static_cast<std::size_t>(bad - ids.begin())), *bad, ">= 0");
}

void check_shape_of_distribution(const SamplingParams& params) {
  if (!(params.temperature >= 0.0F) || std::isinf(params.temperature))
    refuse("temperature", params.temperature, "a finite number >= 0");
  if (!(params.top_p > 0.0F && params.top_p <= 1.0F)) refuse("top_p", params.top_p, "above 0, at most 1");
  if (params.top_k < 0) refuse("top_k", params.top_k, ">= 1, or 0 for off");
  require_between("min_p", params.min_p, 0.0F, 1.0F, "0 to 1");
  if (!(params.repetition_penalty > 0.0F) || std::isinf(params.repetition_penalty))
    refuse("repetition_penalty", params.repetition_penalty, "a finite number > 0");
  require_between("presence_penalty", params.presence_penalty, -kMaxPenalty, kMaxPenalty, "-2 to 2");
  require_between("frequency_penalty", params.frequency_penalty, -kMaxPenalty, kMaxPenalty, "-2 to 2");
}

void check_biases(std::span<const TokenBias> biases) {
  require_count("logit_bias", biases.size(), kMaxLogitBiases);
  std::vector<TokenId> ids;
  for (std::size_t i = 0; i < biases.size(); ++i) {
    if (biases[i].id < 0) refuse(indexed("logit_bias", i) + ".id", biases[i].id, ">= 0");
    require_between(indexed("logit_bias", i) + ".bias", biases[i].bias, -kMaxBias, kMaxBias, "-100 to 100");
    ids.push_back(biases[i].id);
  }
  std::ranges::sort(ids);
  const auto twice = std::ranges::adjacent_find(ids);
  if (twice != ids.end()) throw_invalid("logit_bias has id " + std::to_string(*twice) + " twice; allowed: each id once");
}

void check_bad_words(std::span<const std::vector<TokenId>> words) {
  require_count("bad_words", words.size(), kMaxBadWords);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string name = indexed("bad_words", i);
    if (words[i].empty()) throw_invalid(name + " is empty; allowed: at least one token");
    require_count(name, words[i].size(), kMaxBadWordTokens);
    require_positive_ids(name.c_str(), words[i]);
  }
}

void check_ends(const SamplingParams& params) {
  if (params.max_tokens < 1 && !(params.max_tokens == 0 && params.prompt_logprobs))
    refuse("max_tokens", params.max_tokens, ">= 1, or 0 with prompt_logprobs");
  if (params.min_tokens < 0 || params.min_tokens > params.max_tokens)
    refuse("min_tokens", params.min_tokens, "0 to max_tokens, which is " + std::to_string(params.max_tokens));
  require_count("stop_token_ids", params.stop_token_ids.size(), kMaxStops);
  require_count("stop", params.stop.size(), kMaxStops);
  require_positive_ids("stop_token_ids", params.stop_token_ids);
  for (std::size_t i = 0; i < params.stop.size(); ++i) {
    if (params.stop[i].empty()) throw_invalid(indexed("stop", i) + " is empty; allowed: at least one byte");
  }
}

void check_num_logprobs(const char* field, std::optional<int32_t> num_top) {
  if (num_top && *num_top < 0 && *num_top != SamplingParams::kWholeVocabulary)
    refuse(field, *num_top, ">= 0, or -1 for the whole vocabulary");
}

void require_known(const std::string& field, TokenId id, int64_t vocab_size) {
  if (id >= vocab_size) refuse(field, id, "token ids 0 to " + std::to_string(vocab_size - 1));
}

void require_known(const char* field, std::span<const TokenId> ids, int64_t vocab_size) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= vocab_size) require_known(indexed(field, i), ids[i], vocab_size);
  }
}

void check_told_logprobs(const char* field, std::optional<int32_t> num_top, int64_t num_tokens, int64_t vocab_size) {
  if (!num_top) return;
  if (*num_top > vocab_size) refuse(field, *num_top, "0 to " + std::to_string(vocab_size) + ", or -1 for the whole vocabulary");
  const int64_t num_told = *num_top == SamplingParams::kWholeVocabulary ? vocab_size : *num_top;
  if (num_told == 0 || num_tokens <= kMaxTopLogprobs / num_told) return;
  throw_invalid(std::string(field) + " is " + std::to_string(*num_top) + " for " + std::to_string(num_tokens) +
                " tokens; allowed: at most " + std::to_string(kMaxTopLogprobs / num_told) + " tokens, with " +
                std::to_string(num_told) + " logprobs each");
}

}  // namespace

void validate_sampling(const SamplingParams& params) {
  check_shape_of_distribution(params);
  check_biases(params.logit_bias);
  require_positive_ids("allowed_token_ids", params.allowed_token_ids);
  check_bad_words(params.bad_words);
  check_ends(params);
  check_num_logprobs("logprobs", params.logprobs);
  check_num_logprobs("prompt_logprobs", params.prompt_logprobs);
}

void validate_sampling(const SamplingParams& params, const SamplingBounds& bounds) {
  const int64_t vocab_size = bounds.vocab_size;
  for (std::size_t i = 0; i < params.logit_bias.size(); ++i) {
    if (params.logit_bias[i].id >= vocab_size)
      require_known(indexed("logit_bias", i) + ".id", params.logit_bias[i].id, vocab_size);
  }
  require_count("allowed_token_ids", params.allowed_token_ids.size(), vocab_size);
  require_known("allowed_token_ids", params.allowed_token_ids, vocab_size);
  for (std::size_t i = 0; i < params.bad_words.size(); ++i)
    require_known(indexed("bad_words", i).c_str(), params.bad_words[i], vocab_size);
  require_known("stop_token_ids", params.stop_token_ids, vocab_size);
  check_told_logprobs("logprobs", params.logprobs, bounds.max_completion, vocab_size);
  check_told_logprobs("prompt_logprobs", params.prompt_logprobs, bounds.num_prompt, vocab_size);
}

}  // namespace ferry

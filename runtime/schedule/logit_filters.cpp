#include "runtime/schedule/logit_filters.h"

#include <algorithm>
#include <limits>

namespace ferry {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();
constexpr std::size_t kWordBits = 32;

/// The logit of `id`, or null beyond the row.
float* logit_of(std::span<float> row, TokenId id) {
  return id >= 0 && id < std::ssize(row) ? &row[static_cast<std::size_t>(id)] : nullptr;
}

void forbid(std::span<float> row, TokenId id) {
  if (float* logit = logit_of(row, id)) *logit = kForbidden;
}

void apply_mask(std::span<float> row, std::span<const uint32_t> mask) {
  for (std::size_t first = 0; first < row.size(); first += kWordBits) {
    const uint32_t word = mask[first / kWordBits];
    if (word == ~uint32_t{0}) continue;
    const auto ids = row.subspan(first, std::min(kWordBits, row.size() - first));
    for (std::size_t bit = 0; bit < ids.size(); ++bit) ids[bit] = (word >> bit & 1U) != 0 ? ids[bit] : kForbidden;
  }
}

void keep_allowed(std::span<float> row, std::span<const TokenId> allowed, std::vector<float>& kept) {
  kept.clear();
  for (const TokenId id : allowed) {
    const float* logit = logit_of(row, id);
    kept.push_back(logit != nullptr ? *logit : kForbidden);
  }
  std::ranges::fill(row, kForbidden);
  for (std::size_t i = 0; i < allowed.size(); ++i) {
    if (float* logit = logit_of(row, allowed[i])) *logit = kept[i];
  }
}

/// Whether the completion ends with all of `word` but its last token.
bool ends_with_beginning(const RowHistory& history, std::span<const TokenId> word) {
  const int64_t num_before = std::ssize(word) - 1;
  if (num_before > history.num_generated()) return false;
  for (int64_t i = 0; i < num_before; ++i) {
    if (history[history.size() - num_before + i] != word[static_cast<std::size_t>(i)]) return false;
  }
  return true;
}

void penalise(std::span<float> row, const SamplingParams& params, std::span<const TokenCount> counts) {
  for (const TokenCount& count : counts) {
    float* logit = logit_of(row, count.id);
    if (logit == nullptr) continue;
    if (params.repetition_penalty != 1.0F)
      *logit = *logit > 0.0F ? *logit / params.repetition_penalty : *logit * params.repetition_penalty;
    if (count.num_generated == 0) continue;
    *logit -= params.frequency_penalty * static_cast<float>(count.num_generated);
    *logit -= params.presence_penalty;
  }
}

bool holds_back_stops(const SamplingParams& params, int64_t num_generated) {
  return num_generated < params.min_tokens && (!params.ignore_eos || !params.stop_token_ids.empty());
}

}  // namespace

bool has_filters(const SamplingParams& params, int64_t num_generated) {
  return has_penalties(params) || !params.logit_bias.empty() || !params.allowed_token_ids.empty() ||
         !params.bad_words.empty() || holds_back_stops(params, num_generated);
}

void filter_logits(std::span<float> row, const SamplingParams& params, const FilterContext& context, std::vector<float>& kept) {
  if (!context.mask.empty()) apply_mask(row, context.mask);
  if (!params.allowed_token_ids.empty()) keep_allowed(row, params.allowed_token_ids, kept);
  for (const std::vector<TokenId>& word : params.bad_words) {
    if (ends_with_beginning(context.history, word)) forbid(row, word.back());
  }
  if (holds_back_stops(params, context.history.num_generated())) {
    for (const TokenId id : params.stop_token_ids) forbid(row, id);
    for (const TokenId id : context.stop_ids) {
      if (!params.ignore_eos) forbid(row, id);
    }
  }
  for (const TokenBias& bias : params.logit_bias) {
    if (float* logit = logit_of(row, bias.id)) *logit += bias.bias;
  }
  if (has_penalties(params)) penalise(row, params, context.counts);
}

}  // namespace ferry

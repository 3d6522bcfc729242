#include "runtime/step_sampler.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include "profiler/span.h"
#include "runtime/base/check.h"
#include "runtime/base/out_of_memory.h"
#include "runtime/schedule/logit_filters.h"
#include "runtime/schedule/logprobs.h"
#include "runtime/schedule/token_grammar.h"

namespace ferry {
namespace {

/// The row's values as the model gave them, in the drawer's room for one.
std::span<float> read_row(ConstMatrixView values, std::vector<float>& room) {
  visit_dtype(values.dtype, [&]<class T>() {
    std::transform(values.row<T>(0), values.row<T>(0) + values.cols, room.begin(), [](T x) { return to_float(x); });
  });
  return std::span(room).first(static_cast<std::size_t>(values.cols));
}

Error not_finite() {
  return {ErrorCode::kInternal, "the model's logits are not finite; --check-weights tells whether the checkpoint is to blame"};
}

Error all_forbidden() {
  return {ErrorCode::kInvalidArgument,
          "no token is left to choose: allowed_token_ids, bad_words, min_tokens and the grammar together forbid all"};
}

}  // namespace

StepSampler::StepSampler(ThreadPool& pool, Options options)
    : pool_(pool), options_(std::move(options)), masks_(options_.vocab_size) {
  const int64_t vocab_size = options_.vocab_size, max_sequences = options_.max_sequences;
  const int64_t num_drawers = std::min<int64_t>({pool.num_threads(), kMaxDrawers, max_sequences});
  for (int64_t i = 0; i < num_drawers; ++i)
    drawers_.push_back(
        {.scratch = SamplerScratch(vocab_size), .row = std::vector<float>(static_cast<std::size_t>(vocab_size)), .kept = {}});
  choices_.reserve(static_cast<std::size_t>(max_sequences));
  num_tokens_.reserve(static_cast<std::size_t>(max_sequences));
  tokens_.reserve(static_cast<std::size_t>(max_sequences * (1 + options_.max_drafts)));
}

StepSampler::Preparation StepSampler::prepare(const StepPlan& plan) {
  masks_.begin(plan);
  return Preparation(masks_);
}

StepChoices StepSampler::run(const StepPlan& plan, HostLogits& logits) {
  masks_.finish();
  fetch(plan, logits);
  choose_all(logits);
  close_gaps();
  return {.tokens = tokens_, .num_tokens = num_tokens_};
}

/// Gets the rows' tokens, or what draws need.
void StepSampler::fetch(const StepPlan& plan, HostLogits& logits) {
  choices_.clear();
  num_drawn_ = 0;
  int64_t row = 0;
  for (const StepEntry& entry : plan.entries) {
    if (!entry.samples) continue;
    choices_.push_back({.entry = &entry, .first_row = row});
    bool has_values = false;
    for (int64_t k = 0; k < entry.num_logits(); ++k, ++row) {
      if (needs_values(entry, k, row)) {
        logits.want_values(row);
        has_values = true;
      } else {
        logits.want_token(row);
      }
    }
    num_drawn_ += has_values ? 1 : 0;
  }
  logits.fetch();
  tokens_.resize(static_cast<std::size_t>(row));
  num_tokens_.resize(choices_.size());
}

bool StepSampler::needs_values(const StepEntry& entry, int64_t draft_idx, int64_t row) const {
  const SamplingParams& params = entry.sequence->request.sampling;
  return !is_greedy(params) || params.logprobs || has_filters(params, entry.sequence->num_generated() + draft_idx) ||
         !masks_.of_row(row).empty();
}

void StepSampler::choose_all(const HostLogits& logits) {
  std::optional<Span> span;  // argmax has its own
  if (num_drawn_ > 0) span.emplace(Zone::kSample, num_drawn_);
  std::atomic<std::size_t> next = 0;
  const auto choose_some = [&](int64_t drawer_idx, int) {
    for (std::size_t i = next++; i < choices_.size(); i = next++)
      choose(logits, i, drawers_[static_cast<std::size_t>(drawer_idx)]);
  };
  const int64_t num_threads = std::min(num_drawn_, std::ssize(drawers_));
  if (num_threads <= 1) return choose_some(0, 0);
  pool_.parallel_for(num_threads, choose_some);
}

/// The entry's tokens; no token is the last one where something failed.
void StepSampler::choose(const HostLogits& logits, std::size_t choice_idx, Drawer& drawer) {
  const Choice& choice = choices_[choice_idx];
  SampledTokens& sampled = choice.entry->sequence->sampled;
  int64_t num_chosen = 1;
  const auto fail = [&](const Error& error) {
    sampled.failure = error;
    tokens_[static_cast<std::size_t>(choice.first_row)] = kNoToken;
  };
  tokens_[static_cast<std::size_t>(choice.first_row)] = kNoToken;
  try {
    sampled.logprobs.clear();
    if (!sampled.failure) num_chosen = choose_tokens(logits, choice, drawer);
  } catch (const Error& error) {  // of a grammar
    fail(error);
  } catch (const std::bad_alloc&) {
    fail(out_of_memory());
  } catch (const std::exception& error) {
    fail(Error(ErrorCode::kInternal, error.what()));
  }
  num_tokens_[choice_idx] = static_cast<int32_t>(num_chosen);
}

/// As long as they are the drafts. Returns how many.
int64_t StepSampler::choose_tokens(const HostLogits& logits, const Choice& choice, Drawer& drawer) {
  Sequence& sequence = *choice.entry->sequence;
  const SamplingParams& params = sequence.request.sampling;
  TokenGrammar* const grammar = sequence.request.grammar.get();
  int64_t num_chosen = 0;
  for (bool goes_on = true; goes_on; ++num_chosen) {
    const int64_t row = choice.first_row + num_chosen;
    TokenId& token = tokens_[static_cast<std::size_t>(row)];
    token = logits.has_values(row) ? draw(logits, row, sequence, num_chosen, drawer) : logits.token(row);
    if (token == kNoToken && !sequence.sampled.failure) sequence.sampled.failure = not_finite();
    if (params.logprobs && token != kNoToken) {
      sequence.sampled.logprobs.push_back(logprobs_of(logits.values(row), token, *params.logprobs, drawer));
    }
    goes_on = num_chosen < choice.entry->num_drafts && token == sequence.drafts[static_cast<std::size_t>(num_chosen)];
    if (grammar == nullptr || token == kNoToken) continue;
    if (!grammar->accept(token)) {
      sequence.sampled.failure = Error(
          ErrorCode::kInternal, "the request's grammar refuses token " + std::to_string(token) + ", which its mask allows");
      token = kNoToken;
    }
    goes_on = goes_on && token != kNoToken && !grammar->is_terminated();
  }
  return num_chosen;
}

/// From the values of a row of the sequence that comes behind its first `num_drafts` drafts.
TokenId StepSampler::draw(const HostLogits& logits, int64_t row, Sequence& sequence, int64_t num_drafts, Drawer& drawer) const {
  const SamplingParams& params = sequence.request.sampling;
  FilterContext context{.history = {.tokens = sequence.tokens,
                                    .drafts = std::span(sequence.drafts).first(static_cast<std::size_t>(num_drafts)),
                                    .num_prompt = sequence.num_prompt()},
                        .mask = masks_.of_row(row),
                        .stop_ids = options_.stop_ids,
                        .counts = {}};
  const int64_t token_idx = context.history.num_generated();
  const std::span<float> values = read_row(logits.values(row), drawer.row);
  const bool is_filtered = !context.mask.empty() || has_filters(params, token_idx);
  if (is_filtered) {
    if (has_penalties(params)) {
      sequence.sampled.counts.catch_up(context.history);
      context.counts = sequence.sampled.counts.counts();
    }
    filter_logits(values, params, context, drawer.kept);
  }
  const TokenId token = sample(values, static_cast<int32_t>(std::ssize(values)), params, token_idx, drawer.scratch);
  if (token == kNoToken && is_filtered && highest(read_row(logits.values(row), drawer.row)) != kNoToken)
    sequence.sampled.failure = all_forbidden();
  return token;
}

TokenLogprobs StepSampler::logprobs_of(ConstMatrixView values, TokenId id, int32_t num_top, Drawer& drawer) {
  return token_logprobs(read_row(values, drawer.row), id, num_top, drawer.scratch.candidates);
}

void StepSampler::score(std::span<const PromptToken> tokens, HostLogits& logits) {
  for (int64_t row = 0; row < std::ssize(tokens); ++row) logits.want_values(row);
  logits.fetch();
  const Span span(Zone::kSample, std::ssize(tokens));
  for (const PromptToken& token : tokens) make_room(token);
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;  // guards failures
  parallel_for_throwing(pool_, std::min(std::ssize(tokens), std::ssize(drawers_)), [&](int64_t drawer_idx, int) {
    for (std::size_t row = next++; row < tokens.size(); row = next++) {
      Drawer& drawer = drawers_[static_cast<std::size_t>(drawer_idx)];
      try {
        score_token(tokens[row], logits.values(static_cast<int64_t>(row)), drawer);
      } catch (const std::bad_alloc&) {
        const std::scoped_lock lock(mutex);
        tokens[row].sequence->sampled.failure = out_of_memory();
      }
    }
  });
}

/// For the token's entry. A request for which there is no memory has failed, and gets no further ones.
void StepSampler::make_room(const PromptToken& token) {
  SampledTokens& sampled = token.sequence->sampled;
  std::vector<TokenLogprobs>& told = sampled.prompt_logprobs;
  if (sampled.failure) return;
  FERRY_CHECK_EQ(std::ssize(told) + 1, token.idx);
  try {
    if (told.empty()) told.reserve(static_cast<std::size_t>(token.sequence->num_prompt() - 1));
    told.emplace_back();
  } catch (const std::bad_alloc&) {
    sampled.failure = out_of_memory();
    told = {};
  }
}

void StepSampler::score_token(const PromptToken& token, ConstMatrixView values, Drawer& drawer) {
  const Sequence& sequence = *token.sequence;
  std::vector<TokenLogprobs>& told = token.sequence->sampled.prompt_logprobs;
  const auto place = static_cast<std::size_t>(token.idx - 1);
  if (place >= told.size()) return;  // the request has failed
  told[place] = logprobs_of(values, sequence.tokens[place + 1], *sequence.request.sampling.prompt_logprobs, drawer);
}

/// Rows behind a wrong draft gave no token.
void StepSampler::close_gaps() {
  std::size_t num_tokens = 0;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    for (int64_t k = 0; k < num_tokens_[i]; ++k)
      tokens_[num_tokens++] = tokens_[static_cast<std::size_t>(choices_[i].first_row + k)];
  }
  tokens_.resize(num_tokens);
}

}  // namespace ferry

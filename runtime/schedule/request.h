#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/types.h"

namespace ferry {

struct PromptMedia;
class TokenGrammar;

/// What is added to the logit of a token.
struct TokenBias {
  TokenId id = 0;
  float bias = 0.0F;  // [-100, 100]
};

/// How tokens are chosen. Validated once, when the request enters (validate_sampling in sampling_params.h).
///
/// What changes a row of logits does so in this order: grammar, allowed ids, bad words, stop ids before min_tokens, bias,
/// repetition, presence and frequency penalties, temperature, min_p, top_k, top_p.
struct SamplingParams {
  float temperature = 0.0F;  // 0 = greedy; > 0 scales the logits by 1 / temperature
  float top_p = 1.0F;        // (0, 1]: keep the smallest set of tokens whose probabilities sum to at least this
  int32_t top_k = 0;         // 0 = off; else keep the k most likely tokens
  float min_p = 0.0F;        // [0, 1]: keep the tokens that have at least this share of the likeliest one's probability

  float repetition_penalty =
      1.0F;  // > 0: positive logits of tokens of prompt and completion are divided by it, others multiplied
  float presence_penalty = 0.0F;                // [-2, 2]: subtracted from the logits of tokens of the completion
  float frequency_penalty = 0.0F;               // [-2, 2]: the same, times how often the token is in it
  std::vector<TokenBias> logit_bias;            // each id at most once
  std::vector<TokenId> allowed_token_ids;       // no others are chosen; empty: all
  std::vector<std::vector<TokenId>> bad_words;  // sequences of tokens whose last one is not chosen behind the others

  uint64_t seed = 0;                    // same seed and request, same tokens, whatever else is in the batch
  int32_t max_tokens = 256;             // >= 1; 0 where the prompt is only scored (prompt_logprobs)
  int32_t min_tokens = 0;               // [0, max_tokens]: no stop id is chosen before so many, and no stop string looked for
  bool ignore_eos = false;              // do not stop at the checkpoint's stop ids
  std::vector<TokenId> stop_token_ids;  // further ids that end the text; the id itself is not part of the text
  std::vector<std::string> stop;        // strings that end the text
  bool shows_special = false;           // special tokens, such as <|im_end|>, have text, but for one that ends it all
  bool includes_stop = false;  // the stop string is part of the text, and so is the text of a stop id of the request's own

  // Logarithms of probabilities, of the logits as the model gave them. Absent: none; else how many of the likeliest tokens are
  // told beside the chosen one, 0 ‥ vocab; kWholeVocabulary: all.
  static constexpr int32_t kWholeVocabulary = -1;
  std::optional<int32_t> logprobs;         // of every token of the completion
  std::optional<int32_t> prompt_logprobs;  // of every token of the prompt but the first
};

/// A token's place in the distribution that the model gave.
struct TokenLogprob {
  TokenId id = 0;
  float logprob = 0.0F;  // natural logarithm of its probability
  int32_t rank = 0;      // 1 = the likeliest; tokens of the same logit rank in order of id
};

/// Of one position: the token that is there, and the likeliest ones, in order.
struct TokenLogprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;  // as many as were asked for; `chosen` among them only by its rank
};

/// What a unit of a prompt (prefix_cache.h) is beside its tokens, as a SHA-256, so that a stranger cannot make two that are
/// taken for one: the pictures and videos that some of them stand for, and of the first unit the request's cache_salt.
struct UnitContent {
  int64_t unit = 0;  // counted from the prompt's first
  std::array<std::byte, 32> digest{};
};

/// Names an accepted request inside the process; never given twice.
enum class RequestNumber : uint64_t {};

/// Completions that a client asked for together (its n), each by a request of its own. Theirs is one of these, which only the
/// coordinator changes.
struct Siblings {
  int64_t num_all = 1;
  int64_t num_open = num_all;  // not ended yet
  int64_t longest = 0;         // completion of those that have, in tokens
};

/// The requests of one call of a client: its `n` completions, or those of a list of prompts. Only the scheduler changes it.
struct CallRequests {
  int64_t num_running = 0;  // admitted, with a slot
};

/// A completion to make. `prompt` is never empty and fits the context (checked when it enters).
struct Request {
  std::string id;               // what its owner calls it, and no other open request but siblings; empty: one is made up
  std::string owner;            // who may end it by its id: the same string; empty: this process
  RequestNumber number{};       // given when it is accepted
  std::vector<TokenId> prompt;  // with expanded placeholders where there are media
  std::shared_ptr<const PromptMedia> media;  // null: text only
  SamplingParams sampling;
  int64_t priority = 0;    // the lower the sooner, under SchedulingPolicy::kPriority; else 0
  std::string account;     // on whose behalf it is, for SchedulingPolicy::kFair; requests without one share the empty one
  std::string cache_salt;  // shares cached prefixes with requests of the same one alone
  std::vector<int64_t> cache_hints;  // tokens in front of each message, ascending; empty: found by the token they begin with
  std::vector<UnitContent> unit_contents;  // by unit, of those that have any: made when it is accepted
  std::shared_ptr<TokenGrammar> grammar;   // at its beginning, the request's own and its owner's no more; null: none
  std::shared_ptr<Siblings> siblings;      // null: it is alone
  std::shared_ptr<CallRequests> call;      // null: its call made no other
  std::optional<std::chrono::steady_clock::time_point> deadline;
  std::optional<std::chrono::steady_clock::time_point> arrival;  // before its text became tokens; absent: when it is submitted

  /// Whether every row of the prompt has to be computed for it: keys, values and states may not come from another request's.
  bool needs_all_rows() const { return sampling.prompt_logprobs.has_value(); }
};

enum class FinishReason { kNone, kStop, kLength, kAborted, kDeadline, kError };
inline constexpr std::size_t kNumFinishReasons = 6;  // with kNone

/// "stop", "length", "abort", "deadline", "error" or "".
const char* finish_reason_name(FinishReason reason);

/// Errors of a request that cannot be taken: kInvalidArgument for an id that is in use, kUnavailable at the end of a server.
[[noreturn]] void throw_taken_id(const std::string& request_id);
[[noreturn]] void throw_draining();

}  // namespace ferry

#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/types.h"

namespace ferry {

struct PromptMedia;

/// How tokens are chosen. Validated once, when the request enters (validate_sampling in sampler.h).
struct SamplingParams {
  float temperature = 0.0F;             // 0 = greedy; > 0 scales the logits by 1 / temperature
  float top_p = 1.0F;                   // (0, 1]: keep the smallest set of tokens whose probabilities sum to at least this
  int32_t top_k = 0;                    // 0 = off; else keep the k most likely tokens
  uint64_t seed = 0;                    // same seed and request, same tokens, whatever else is in the batch
  int32_t max_tokens = 256;             // >= 1
  bool ignore_eos = false;              // do not stop at the checkpoint's stop ids
  std::vector<TokenId> stop_token_ids;  // further ids that end the text; the id itself is not part of the text
  std::vector<std::string> stop;        // strings that end the text; not part of it
};

/// Names an accepted request inside the process; never given twice.
enum class RequestNumber : uint64_t {};

/// A completion to make. `prompt` is never empty and fits the context (checked when it enters).
struct Request {
  std::string id;               // what its owner calls it, unique among that owner's open requests; empty: one is made up
  std::string owner;            // who may end it by its id: the same string; empty: this process
  RequestNumber number{};       // given when it is accepted
  std::vector<TokenId> prompt;  // with expanded placeholders where there are media
  std::shared_ptr<const PromptMedia> media;  // null: text only
  SamplingParams sampling;
  std::optional<std::chrono::steady_clock::time_point> deadline;
  std::optional<std::chrono::steady_clock::time_point> arrival;  // before its text became tokens; absent: when it is submitted
};

enum class FinishReason { kNone, kStop, kLength, kAborted, kDeadline, kError };

/// "stop", "length", "abort", "deadline", "error" or "".
const char* finish_reason_name(FinishReason reason);

/// Errors of a request that cannot be taken: kInvalidArgument for an id that is in use, kUnavailable at the end of a server.
[[noreturn]] void throw_taken_id(const std::string& request_id);
[[noreturn]] void throw_draining();

}  // namespace ferry

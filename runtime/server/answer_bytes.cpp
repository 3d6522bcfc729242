#include "runtime/server/answer_bytes.h"

#include <malloc.h>

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/base/available_memory.h"
#include "runtime/base/check.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

// These count what is kept of an answer and its text together. With words of five letters JSON has 70 to 110 bytes for an entry
// and a message of gRPC 75. What is kept has 12 for an entry, and a list for each position.
constexpr int64_t kEntryBytes = 144;    // of a token and its logprob
constexpr int64_t kPositionBytes = 64;  // of a position that has such tokens
constexpr int64_t kTokenBytes = 32;     // of a token of the completion
constexpr int64_t kTextCopies = 4;      // of the text: read, taken apart, written, sent
constexpr int64_t kLargeBytes = int64_t{16} << 20;

int64_t logprob_bytes(int32_t num_top, int64_t vocab_size) {
  const int64_t top = num_top == SamplingParams::kWholeVocabulary ? vocab_size : std::min<int64_t>(num_top, vocab_size);
  return kPositionBytes + (1 + top) * kEntryBytes;
}

int64_t prompt_part(const Request& request, int64_t vocab_size) {
  const auto num_tokens = static_cast<int64_t>(request.prompt.size());
  const std::optional<int32_t>& num_top = request.sampling.prompt_logprobs;
  return num_tokens * (kTokenBytes + (num_top ? logprob_bytes(*num_top, vocab_size) : 0));
}

int64_t token_part(const Request& request, int64_t vocab_size) {
  const std::optional<int32_t>& num_top = request.sampling.logprobs;
  return kTokenBytes + (num_top ? logprob_bytes(*num_top, vocab_size) : 0);
}

/// Sums over a call's requests.
struct AnswerParts {
  int64_t prompts = 0;  // bytes
  int64_t token = 0;    // bytes of one token of each
  int64_t total = 0;    // bytes
};

AnswerParts parts_of(std::span<const Request> requests, int64_t vocab_size) {
  AnswerParts parts;
  for (const Request& request : requests) {
    const int64_t prompt = prompt_part(request, vocab_size), token = token_part(request, vocab_size);
    parts.prompts += prompt;
    parts.token += token;
    parts.total += prompt + request.sampling.max_tokens * token;
  }
  return parts;
}

int64_t largest_piece(std::span<const Request> requests, int64_t vocab_size) {
  int64_t most = 0;
  for (const Request& request : requests)
    most = std::max(most, prompt_part(request, vocab_size) + token_part(request, vocab_size));
  return most;
}

/// So many tokens of each completion fit; false if not even `min_tokens`, or one.
bool shorten(std::span<Request> requests, const AnswerBound& bound) {
  const AnswerParts parts = parts_of(requests, bound.vocab_size);
  const int64_t num_tokens = (bound.most_bytes - parts.prompts) / parts.token;
  const auto fits = [&](const Request& request) { return num_tokens >= std::max(request.sampling.min_tokens, 1); };
  if (!std::ranges::all_of(requests, fits)) return false;
  for (Request& request : requests) {
    int32_t& max_tokens = request.sampling.max_tokens;
    max_tokens = static_cast<int32_t>(std::min<int64_t>(max_tokens, num_tokens));
  }
  return true;
}

[[noreturn]] void refuse_answer(std::span<const Request> requests, const AnswerBound& bound, int64_t num_bytes) {
  int64_t num_prompt = 0;
  for (const Request& request : requests) num_prompt += std::ssize(request.prompt);
  const SamplingParams& sampling = requests.front().sampling;
  std::string fields = requests.size() > 1 ? "n or the number of prompts" : "";
  const auto add_field = [&](const std::string& field) { fields += (fields.empty() ? "" : ", ") + field; };
  if (sampling.prompt_logprobs) add_field("prompt_logprobs or the length of the prompt");
  if (sampling.logprobs) add_field("logprobs");
  if (bound.form == AnswerForm::kWhole) add_field("max_tokens");
  throw_invalid("the answer may take " + size_that_holds(num_bytes) + ", for " + std::to_string(requests.size()) +
                (requests.size() == 1 ? " completion" : " completions") + " of prompts of " + std::to_string(num_prompt) +
                " tokens together; allowed: at most " + size_text(bound.most_bytes) + " (--answer-bytes), so lower " + fields);
}

}  // namespace

int64_t answer_bytes(std::span<const Request> requests, const AnswerBound& bound) {
  return bound.form == AnswerForm::kStream ? largest_piece(requests, bound.vocab_size)
                                           : parts_of(requests, bound.vocab_size).total;
}

void bound_answer(std::span<Request> requests, const AnswerBound& bound) {
  const int64_t num_bytes = answer_bytes(requests, bound);
  if (num_bytes <= bound.most_bytes) return;
  if (bound.may_shorten && bound.form == AnswerForm::kWhole && shorten(requests, bound)) return;
  refuse_answer(requests, bound, num_bytes);
}

int64_t event_bytes(const GenerateEvent& event) {
  int64_t num_bytes =
      std::ssize(event.token_ids) * static_cast<int64_t>(sizeof(TokenId)) + kTextCopies * std::ssize(event.text);
  for (const auto* positions : {&event.logprobs, &event.prompt_logprobs}) {
    for (const TokenLogprobs& position : *positions) num_bytes += kPositionBytes + (1 + std::ssize(position.top)) * kEntryBytes;
  }
  return num_bytes;
}

bool AnswerMemory::take(int64_t num_bytes) {
  const std::scoped_lock lock(mutex_);
  if (num_bytes > most_bytes_ - num_bytes_) return false;
  num_bytes_ += num_bytes;
  return true;
}

void AnswerMemory::give_back(int64_t num_bytes) {
  const std::scoped_lock lock(mutex_);
  num_bytes_ -= num_bytes;
}

HeldAnswer::HeldAnswer(std::shared_ptr<AnswerMemory> memory, int64_t most_bytes)
    : memory_(std::move(memory)), most_bytes_(most_bytes) {}

HeldAnswer::~HeldAnswer() { give_back(num_bytes_); }

void HeldAnswer::add(int64_t num_bytes) {
  if (num_bytes > most_bytes_ - num_bytes_) {
    throw Error(ErrorCode::kFailedPrecondition, "the answer has grown to " + size_that_holds(num_bytes_ + num_bytes) +
                                                    "; allowed: at most " + size_text(most_bytes_) + " (--answer-bytes)");
  }
  if (!memory_->take(num_bytes)) {
    throw Error(ErrorCode::kResourceExhausted, "the answers of all calls together hold " + size_text(memory_->most_bytes()) +
                                                   ", which is all that is allowed (--total-answer-bytes); try again");
  }
  num_bytes_ += num_bytes;
  most_held_ = std::max(most_held_, num_bytes_);
}

void HeldAnswer::give_back(int64_t num_bytes) {
  FERRY_CHECK_LE(num_bytes, num_bytes_);
  memory_->give_back(num_bytes);
  num_bytes_ -= num_bytes;
}

bool HeldAnswer::was_large() const { return most_held_ >= kLargeBytes; }

void return_free_pages() { malloc_trim(0); }

}  // namespace ferry

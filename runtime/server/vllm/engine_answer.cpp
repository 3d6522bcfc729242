#include "runtime/server/vllm/engine_answer.h"

#include <algorithm>
#include <utility>

namespace ferry::vllm {
namespace {

namespace wire = ::vllm::grpc::engine;

const char* engine_finish_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    default: return "abort";
  }
}

/// The likeliest tokens at a position, in order.
void add_top(const std::vector<TokenLogprob>& likeliest, wire::TopLogProbs& top) {
  for (const TokenLogprob& token : likeliest) {
    top.add_values(token.logprob);
    top.add_token_ids(static_cast<uint32_t>(token.id));
  }
}

void add_output_logprobs(const std::vector<TokenLogprobs>& positions, wire::OutputLogProbs& logprobs) {
  for (const TokenLogprobs& position : positions) {
    logprobs.add_token_logprobs(position.chosen.logprob);
    logprobs.add_token_ids(static_cast<uint32_t>(position.chosen.id));
    if (!position.top.empty()) add_top(position.top, *logprobs.add_top_logprobs());
  }
}

/// The prompt's first token has none.
void add_input_logprobs(TokenId first, bool has_top, const std::vector<TokenLogprobs>& positions,
                        wire::InputLogProbs& logprobs) {
  logprobs.add_token_logprobs();
  logprobs.add_token_ids(static_cast<uint32_t>(first));
  if (has_top) logprobs.add_top_logprobs();
  for (const TokenLogprobs& position : positions) {
    logprobs.add_token_logprobs()->set_value(position.chosen.logprob);
    logprobs.add_token_ids(static_cast<uint32_t>(position.chosen.id));
    if (!position.top.empty()) add_top(position.top, *logprobs.add_top_logprobs());
  }
}

/// Whether what is told of the prompt comes with `event`, if it has not come before.
bool tells_prompt(const GenerateEvent& event) { return !event.token_ids.empty() || event.finish_reason != FinishReason::kNone; }

}  // namespace

void EngineAnswer::begin(std::span<const Request> requests) {
  prompt_ = requests.front().prompt;
  prompt_logprobs_ = requests.front().sampling.prompt_logprobs;
  choice_at(requests.size() - 1);
}

EngineAnswer::Choice& EngineAnswer::choice_at(std::size_t choice) {
  for (std::size_t i = choices_.size(); i <= choice; ++i) {
    Complete& complete = choices_.emplace_back().complete;
    complete.set_index(static_cast<uint32_t>(i));
    complete.set_prompt_tokens(static_cast<uint32_t>(prompt_.size()));
  }
  return choices_[choice];
}

/// Into a chunk or a last message.
template <class Message>
void EngineAnswer::add_logprobs(Choice& choice, const GenerateEvent& event, Message& message) const {
  if (!event.logprobs.empty()) add_output_logprobs(event.logprobs, *message.mutable_output_logprobs());
  if (!prompt_logprobs_ || choice.has_told_prompt || !tells_prompt(event)) return;
  choice.has_told_prompt = true;
  add_input_logprobs(prompt_.front(), *prompt_logprobs_ != 0, event.prompt_logprobs, *message.mutable_input_logprobs());
}

void EngineAnswer::add(std::size_t choice, const GenerateEvent& event) {
  Choice& state = choice_at(choice);
  Complete& complete = state.complete;
  complete.mutable_output_ids()->Add(event.token_ids.begin(), event.token_ids.end());
  complete.set_completion_tokens(static_cast<uint32_t>(complete.output_ids_size()));
  complete.set_cached_tokens(std::max(complete.cached_tokens(), static_cast<uint32_t>(event.cached_tokens)));
  if (streams_) {
    add_to_chunk(state, event);
  } else {
    add_logprobs(state, event, complete);
  }
  if (event.finish_reason == FinishReason::kNone) return;
  state.has_ended = true;
  complete.set_finish_reason(engine_finish_name(event.finish_reason));
  if (event.stop_id) complete.set_matched_token_id(static_cast<uint32_t>(*event.stop_id));
  if (!event.stop.empty()) complete.set_matched_stop_str(event.stop);
}

void EngineAnswer::add_to_chunk(Choice& choice, const GenerateEvent& event) {
  const bool is_first_of_prompt = prompt_logprobs_ && !choice.has_told_prompt && tells_prompt(event);
  if (event.token_ids.empty() && !is_first_of_prompt) return;
  if (!choice.chunk) choice.chunk.emplace();
  Chunk& chunk = *choice.chunk;
  chunk.mutable_token_ids()->Add(event.token_ids.begin(), event.token_ids.end());
  chunk.set_index(choice.complete.index());
  chunk.set_prompt_tokens(choice.complete.prompt_tokens());
  chunk.set_completion_tokens(choice.complete.completion_tokens());
  chunk.set_cached_tokens(choice.complete.cached_tokens());
  add_logprobs(choice, event, chunk);
}

std::optional<EngineAnswer::Response> EngineAnswer::next() {
  for (Choice& choice : choices_) {
    if (!choice.chunk && !choice.has_ended) continue;
    Response response;
    told_choice_ = choice.complete.index();
    if (choice.chunk) {
      *response.mutable_chunk() = std::move(*std::exchange(choice.chunk, std::nullopt));
    } else {
      choice.has_ended = false;
      *response.mutable_complete() = std::move(choice.complete);
    }
    return response;
  }
  return std::nullopt;
}

}  // namespace ferry::vllm

#include "runtime/server/generate_response.h"

namespace ferry {
namespace {

v1::Completion::FinishReason finish_reason_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return v1::Completion::FINISH_REASON_STOP;
    case FinishReason::kLength: return v1::Completion::FINISH_REASON_LENGTH;
    case FinishReason::kAborted: return v1::Completion::FINISH_REASON_ABORTED;
    case FinishReason::kDeadline: return v1::Completion::FINISH_REASON_DEADLINE;
    case FinishReason::kNone:
    case FinishReason::kError: break;
  }
  return v1::Completion::FINISH_REASON_UNSPECIFIED;
}

void fill(const TokenLogprob& token, v1::TokenLogprob& message) {
  message.set_id(token.id);
  message.set_logprob(token.logprob);
  message.set_rank(token.rank);
}

void add_all(const std::vector<TokenLogprobs>& tokens, google::protobuf::RepeatedPtrField<v1::TokenLogprobs>& messages) {
  messages.Reserve(static_cast<int>(tokens.size()));
  for (const TokenLogprobs& token : tokens) {
    v1::TokenLogprobs& message = *messages.Add();
    fill(token.chosen, *message.mutable_chosen());
    message.mutable_top()->Reserve(static_cast<int>(token.top.size()));
    for (const TokenLogprob& likely : token.top) fill(likely, *message.add_top());
  }
}

void fill(const GenerateEvent& event, v1::Completion& completion) {
  constexpr int64_t kNsPerUs = 1000;
  completion.set_finish_reason(finish_reason_of(event.finish_reason));
  completion.set_prompt_tokens(event.prompt_tokens);
  completion.set_completion_tokens(event.completion_tokens);
  completion.mutable_timings()->set_queue_us(event.timings.queue_ns / kNsPerUs);
  completion.mutable_timings()->set_first_token_us(event.timings.first_token_ns / kNsPerUs);
  completion.mutable_timings()->set_total_us(event.timings.total_ns / kNsPerUs);
  completion.set_request_id(event.request_id);
  completion.set_cached_tokens(event.cached_tokens);
  completion.set_stop(event.stop);
  if (event.stop_id) completion.set_stop_id(*event.stop_id);
}

}  // namespace

v1::GenerateResponse to_response(const GenerateEvent& event) {
  v1::GenerateResponse response;
  response.mutable_token_ids()->Add(event.token_ids.begin(), event.token_ids.end());
  response.set_text(event.text);
  add_all(event.logprobs, *response.mutable_logprobs());
  add_all(event.prompt_logprobs, *response.mutable_prompt_logprobs());
  if (event.finish_reason != FinishReason::kNone) fill(event, *response.mutable_completion());
  return response;
}

void append(v1::GenerateResponse& response, v1::GenerateResponse next) {
  response.mutable_token_ids()->MergeFrom(next.token_ids());
  response.mutable_text()->append(next.text());
  response.mutable_logprobs()->MergeFrom(next.logprobs());
  response.mutable_prompt_logprobs()->MergeFrom(next.prompt_logprobs());
  if (next.has_completion()) response.mutable_completion()->Swap(next.mutable_completion());
}

}  // namespace ferry

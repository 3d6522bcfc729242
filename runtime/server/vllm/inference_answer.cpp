#include "runtime/server/vllm/inference_answer.h"

#include <utility>

namespace ferry::vllm {
namespace {

/// One entry of each list for a position: a PromptInfo, or a SequenceOutput.
template <class Message>
void add_positions(const std::vector<TokenLogprobs>& positions, Message& message) {
  for (const TokenLogprobs& position : positions) {
    message.add_logprobs(position.chosen.logprob);
    message.add_ranks(static_cast<uint32_t>(position.chosen.rank));
    auto& candidates = *message.add_candidate_tokens();
    for (const TokenLogprob& token : position.top) {
      if (token.id == position.chosen.id) continue;
      auto& told = *candidates.add_tokens();
      told.set_id(static_cast<uint32_t>(token.id));
      told.set_logprob(token.logprob);
      told.set_rank(static_cast<uint32_t>(token.rank));
    }
  }
}

::vllm::FinishInfo::FinishReason inference_finish_reason(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return ::vllm::FinishInfo::STOP;
    case FinishReason::kLength: return ::vllm::FinishInfo::LENGTH;
    default: return ::vllm::FinishInfo::ABORTED;
  }
}

/// A completion that neither a stop string nor an id of the request's own has stopped ends with an id of the checkpoint's.
void fill(const GenerateEvent& event, std::optional<TokenId> last_id, ::vllm::FinishInfo& info) {
  info.set_num_output_tokens(static_cast<uint32_t>(event.completion_tokens));
  info.set_finish_reason(inference_finish_reason(event.finish_reason));
  if (event.finish_reason != FinishReason::kStop) return;
  if (!event.stop.empty()) {
    info.set_stop_string(event.stop);
  } else if (event.stop_id) {
    info.set_stop_token_id(static_cast<uint32_t>(*event.stop_id));
  } else if (last_id) {
    info.set_eos_token_id(static_cast<uint32_t>(*last_id));
  }
}

}  // namespace

void InferenceAnswer::begin(std::span<const Request> requests) {
  prompt_ = requests.front().prompt;
  has_prompt_logprobs_ = requests.front().sampling.prompt_logprobs.has_value();
  choices_.resize(requests.size());
}

/// With the first event that has tokens, or else the last one, since that has the prompt's logprobs.
void InferenceAnswer::tell_prompt(const GenerateEvent& event) {
  has_told_prompt_ = true;
  ::vllm::PromptInfo& info = prompt_info_.emplace();
  info.set_num_prompt_tokens(static_cast<uint32_t>(prompt_.size()));
  if (form_.has_prompt_ids) info.mutable_token_ids()->Add(prompt_.begin(), prompt_.end());
  if (!has_prompt_logprobs_) return;
  info.add_logprobs(0.0F);
  info.add_ranks(0);
  info.add_candidate_tokens();
  add_positions(event.prompt_logprobs, info);
}

void InferenceAnswer::add(std::size_t choice, const GenerateEvent& event) {
  const bool is_last = event.finish_reason != FinishReason::kNone;
  if (!has_told_prompt_ && (is_last || !event.token_ids.empty())) tell_prompt(event);
  if (choice >= choices_.size()) choices_.resize(choice + 1);
  Choice& state = choices_[choice];
  if (!event.token_ids.empty()) state.last_id = event.token_ids.back();
  if (!state.output) state.output.emplace();
  ::vllm::SequenceOutput& output = *state.output;
  output.set_index(static_cast<uint32_t>(choice));
  if (form_.has_text) output.mutable_text()->append(event.text);
  output.set_num_tokens(output.num_tokens() + static_cast<uint32_t>(event.token_ids.size()));
  if (form_.has_ids) output.mutable_token_ids()->Add(event.token_ids.begin(), event.token_ids.end());
  add_positions(event.logprobs, output);
  if (is_last) fill(event, state.last_id, *output.mutable_finish_info());
}

std::optional<InferenceAnswer::Response> InferenceAnswer::next() {
  if (!has_told_prompt_) return std::nullopt;
  Response response;
  const bool tells_prompt = prompt_info_.has_value();
  if (tells_prompt) *response.mutable_prompt_info() = std::move(*std::exchange(prompt_info_, std::nullopt));
  told_choice_ = choices_.size();
  if (tells_prompt && streams_) return response;
  for (Choice& choice : choices_) {
    if (!choice.output) continue;
    told_choice_ = choice.output->index();
    *response.mutable_outputs() = std::move(*std::exchange(choice.output, std::nullopt));
    return response;
  }
  return std::nullopt;
}

}  // namespace ferry::vllm

#include "runtime/server/openai/completion_answer.h"
#include "runtime/server/openai/openai_error.h"

#include <algorithm>
#include <utility>

namespace ferry::api::openai {
CompletionAnswer::CompletionAnswer(CompletionForm form, std::vector<ToldPrompt> prompts, const TokenNames& names)
    : form_(std::move(form)), prompts_(std::move(prompts)), names_(names) {
  choices_.assign(prompts_.size() * static_cast<std::size_t>(form_.choices_per_prompt), Choice(names_));
}

const ToldPrompt& CompletionAnswer::prompt_of(std::size_t choice) const {
  return prompts_[choice / static_cast<std::size_t>(form_.choices_per_prompt)];
}

void CompletionAnswer::count(Choice& choice, const GenerateEvent& event) {
  choice.num_tokens += std::ssize(event.token_ids);
  choice.cached_tokens = std::max<int64_t>(choice.cached_tokens, event.cached_tokens);
}

/// What stands before a completion's logprobs where the prompt is echoed.
void CompletionAnswer::add_prompt_logprobs(std::size_t choice, std::span<const TokenLogprobs> positions) {
  CompletionLogprobs& logprobs = choices_[choice].logprobs;
  logprobs.add_first(prompt_of(choice).ids.front());
  for (const TokenLogprobs& position : positions) logprobs.add(position);
}

ordered_json CompletionAnswer::chunk_head() const {
  return {{"id", form_.head.id}, {"object", "text_completion"}, {"created", form_.head.created}, {"model", form_.head.model}};
}

std::string CompletionAnswer::chunk(std::size_t choice, const GenerateEvent& event) {
  Choice& state = choices_[choice];
  count(state, event);
  const bool is_first = !std::exchange(state.has_begun, true);
  const bool is_last = event.finish_reason != FinishReason::kNone;
  const bool tells_tokens = !event.token_ids.empty() && (form_.has_logprobs || form_.returns_token_ids);
  const bool tells_prompt = is_first && (form_.echo || form_.returns_token_ids);
  if (event.text.empty() && !tells_tokens && !tells_prompt && !is_last) return "";
  ordered_json told = {{"index", choice}, {"text", (is_first && form_.echo ? prompt_of(choice).text : "") + event.text}};
  if (form_.has_logprobs) {
    if (is_first && form_.echo) add_prompt_logprobs(choice, event.prompt_logprobs);
    for (const TokenLogprobs& position : event.logprobs) state.logprobs.add(position);
    told["logprobs"] = state.logprobs.take();
  } else {
    told["logprobs"] = nullptr;
  }
  told["finish_reason"] = is_last ? ordered_json(finish_name(event.finish_reason)) : ordered_json();
  told["stop_reason"] = stop_reason_json(event);
  if (is_first && form_.returns_token_ids) told["prompt_token_ids"] = prompt_of(choice).ids;
  if (form_.returns_token_ids) told["token_ids"] = event.token_ids;
  ordered_json data = chunk_head();
  data["choices"] = ordered_json::array({std::move(told)});
  if (form_.head.has_usage_in_chunks) {
    data["usage"] = usage_json({.prompt_tokens = std::ssize(prompt_of(choice).ids),
                                .completion_tokens = state.num_tokens,
                                .cached_tokens = state.cached_tokens});
  }
  return server_sent(data);
}

std::string CompletionAnswer::last_chunks() {
  if (!form_.head.includes_usage) return kStreamEnd;
  ordered_json data = chunk_head();
  data["choices"] = ordered_json::array();
  data["usage"] = usage_json(usage());
  data["system_fingerprint"] = form_.head.fingerprint;
  return server_sent(data) + kStreamEnd;
}

/// Prompts count once, however many choices they have.
UsageCount CompletionAnswer::usage() const {
  UsageCount usage;
  for (const ToldPrompt& prompt : prompts_) usage.prompt_tokens += std::ssize(prompt.ids);
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    usage.completion_tokens += choices_[i].num_tokens;
    const bool is_first_of_prompt = i % static_cast<std::size_t>(form_.choices_per_prompt) == 0;
    if (is_first_of_prompt) usage.cached_tokens += choices_[i].cached_tokens;
  }
  return usage;
}

void CompletionAnswer::keep(std::size_t choice, const GenerateEvent& event) {
  Choice& state = choices_[choice];
  count(state, event);
  state.text += event.text;
  state.keep(event);
}

ordered_json CompletionAnswer::choice_json(std::size_t choice) {
  Choice& state = choices_[choice];
  const ToldPrompt& prompt = prompt_of(choice);
  ordered_json told = {{"index", choice}, {"text", (form_.echo ? prompt.text : "") + state.text}};
  if (form_.has_logprobs) {
    if (form_.echo) add_prompt_logprobs(choice, state.prompt_logprobs);
    for (const TokenLogprobs& position : state.token_logprobs) state.logprobs.add(position);
    told["logprobs"] = state.logprobs.take();
  } else {
    told["logprobs"] = nullptr;
  }
  told["finish_reason"] = finish_name(state.last.finish_reason);
  told["stop_reason"] = stop_reason_json(state.last);
  told["token_ids"] = form_.returns_token_ids ? ordered_json(state.token_ids) : ordered_json();
  told["prompt_logprobs"] = form_.has_prompt_logprobs ? prompt_logprobs(state.prompt_logprobs, names_) : ordered_json();
  told["prompt_token_ids"] = form_.returns_token_ids ? ordered_json(prompt.ids) : ordered_json();
  return told;
}

std::string CompletionAnswer::whole() {
  ordered_json data = chunk_head();
  ordered_json& choices = data["choices"] = ordered_json::array();
  for (std::size_t i = 0; i < choices_.size(); ++i) choices.push_back(choice_json(i));
  data["service_tier"] = nullptr;
  data["system_fingerprint"] = form_.head.fingerprint;
  data["usage"] = usage_json(usage());
  data["kv_transfer_params"] = nullptr;
  data["metrics"] = nullptr;
  return dump(data);
}

}  // namespace ferry::api::openai

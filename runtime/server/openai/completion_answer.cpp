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

/// Writes null if the request wants none, and those of the prompt only if it is echoed.
void CompletionAnswer::write_logprobs(std::size_t choice, bool tells_prompt, ToldPositions told, JsonText& json) {
  json.key("logprobs");
  if (!form_.has_logprobs) {
    json.null();
    return;
  }
  if (tells_prompt) {
    told.first = prompt_of(choice).ids.front();
  } else {
    told.prompt = {};
  }
  choices_[choice].logprobs.write(told, json);
}

/// Writes null if the request does not want them.
void CompletionAnswer::write_ids(const char* name, std::span<const TokenId> ids, JsonText& json) const {
  json.key(name);
  if (form_.returns_token_ids) {
    write_token_ids(ids, json);
  } else {
    json.null();
  }
}

/// Opens the object and writes the members that all have.
void CompletionAnswer::write_head(JsonText& json) const {
  const ordered_json head = chunk_head();
  json.begin_object();
  for (const auto& [name, value] : head.items()) json.member(name, value);
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
  JsonText json;
  write_head(json);
  json.key("choices").begin_array().begin_object().member("index", choice);
  json.member("text", (is_first && form_.echo ? prompt_of(choice).text : "") + event.text);
  write_logprobs(choice, is_first && form_.echo, {.first = {}, .prompt = event.prompt_logprobs, .completion = event.logprobs},
                 json);
  json.member("finish_reason", is_last ? ordered_json(finish_name(event.finish_reason)) : ordered_json());
  json.member("stop_reason", stop_reason_json(event));
  if (is_first && form_.returns_token_ids) write_ids("prompt_token_ids", prompt_of(choice).ids, json);
  if (form_.returns_token_ids) write_ids("token_ids", event.token_ids, json);
  json.end_object().end_array();
  if (form_.head.has_usage_in_chunks) {
    json.member("usage", usage_json({.prompt_tokens = std::ssize(prompt_of(choice).ids),
                                     .completion_tokens = state.num_tokens,
                                     .cached_tokens = state.cached_tokens}));
  }
  json.end_object();
  return server_sent_text(json.take());
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

/// Afterwards nothing of the choice is kept.
void CompletionAnswer::write_choice(std::size_t choice, JsonText& json) {
  Choice& state = choices_[choice];
  const ToldPrompt& prompt = prompt_of(choice);
  const std::vector<TokenLogprobs> of_prompt = std::exchange(state.prompt_logprobs, {});
  const std::vector<TokenLogprobs> of_tokens = std::exchange(state.token_logprobs, {});
  json.begin_object().member("index", choice).member("text", (form_.echo ? prompt.text : "") + state.text);
  write_logprobs(choice, form_.echo, {.first = {}, .prompt = of_prompt, .completion = of_tokens}, json);
  json.member("finish_reason", finish_name(state.last.finish_reason)).member("stop_reason", stop_reason_json(state.last));
  write_ids("token_ids", state.token_ids, json);
  json.key("prompt_logprobs");
  if (form_.has_prompt_logprobs) {
    write_prompt_logprobs(of_prompt, names_, json);
  } else {
    json.null();
  }
  write_ids("prompt_token_ids", prompt.ids, json);
  json.end_object();
}

std::string CompletionAnswer::whole() {
  std::size_t num_bytes = 0;
  for (const Choice& choice : choices_)
    num_bytes += logprobs_text_bytes(choice.prompt_logprobs) + logprobs_text_bytes(choice.token_logprobs);
  JsonText json(num_bytes);
  write_head(json);
  json.key("choices").begin_array();
  for (std::size_t i = 0; i < choices_.size(); ++i) write_choice(i, json);
  json.end_array();
  json.member("service_tier", nullptr).member("system_fingerprint", form_.head.fingerprint);
  json.member("usage", usage_json(usage()));
  json.member("kv_transfer_params", nullptr).member("metrics", nullptr).end_object();
  return json.take();
}

}  // namespace ferry::api::openai

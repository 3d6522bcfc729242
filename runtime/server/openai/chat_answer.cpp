#include "runtime/server/openai/chat_answer.h"
#include "runtime/server/openai/openai_error.h"

#include <utility>

#include "runtime/base/random_id.h"

namespace ferry::api::openai {
namespace {

std::string new_call_id() { return "chatcmpl-tool-" + random_id(); }

/// The text under `name`, which is "" if it is not there.
std::string& text_in(ordered_json& object, const char* name) {
  if (!object.contains(name)) object[name] = "";
  return object[name].get_ref<std::string&>();
}

/// Adds what is told of a call to the list of a delta, where each call is there once.
void add_call(const ReplyDelta& delta, ordered_json& calls) {
  if (delta.part == ReplyPart::kCallBegin) {
    calls.push_back({{"index", delta.call_idx},
                     {"id", new_call_id()},
                     {"type", "function"},
                     {"function", {{"name", delta.text}, {"arguments", ""}}}});
    return;
  }
  if (delta.text.empty()) return;
  if (calls.empty() || calls.back()["index"] != delta.call_idx)
    calls.push_back({{"index", delta.call_idx}, {"function", {{"arguments", ""}}}});
  calls.back()["function"]["arguments"].get_ref<std::string&>() += delta.text;
}

}  // namespace

ChatAnswer::ChatAnswer(ChatForm form, ToolSet tools, std::vector<TokenId> prompt_ids, const TokenNames& names)
    : form_(std::move(form)), tools_(std::move(tools)), prompt_ids_(std::move(prompt_ids)), names_(names) {
  const ReplyParser::Options options{.tools = &tools_,
                                     .parallel_calls = form_.parallel_tool_calls,
                                     .starts_in_reasoning = form_.starts_in_reasoning,
                                     .special = form_.shows_special ? SpecialTokens::kKeep : SpecialTokens::kSkip,
                                     .closes_cut_calls = false};
  for (int32_t i = 0; i < form_.num_choices; ++i) choices_.push_back(std::make_unique<Choice>(names_.tokenizer(), options));
}

ordered_json ChatAnswer::head_json(const char* object) const {
  return {{"id", form_.head.id}, {"object", object}, {"created", form_.head.created}, {"model", form_.head.model}};
}

std::string ChatAnswer::chunk_of(std::size_t choice, ordered_json told) const {
  ordered_json data = head_json("chat.completion.chunk");
  const bool is_first = told.at("delta").contains("role");
  data["choices"] = ordered_json::array({std::move(told)});
  if (is_first && form_.returns_token_ids) data["prompt_token_ids"] = prompt_ids_;
  if (form_.head.has_usage_in_chunks) data["usage"] = usage_json(usage_of(*choices_[choice]));
  return server_sent(data);
}

/// The chunks that a choice begins with.
std::string ChatAnswer::begin(std::size_t choice) {
  const auto told = [&](ordered_json delta) {
    return chunk_of(choice,
                    {{"index", choice}, {"delta", std::move(delta)}, {"logprobs", nullptr}, {"finish_reason", nullptr}});
  };
  std::string chunks = told({{"role", form_.role}, {"content", ""}});
  if (!form_.echoed.empty()) chunks += told({{"content", form_.echoed}});
  return chunks;
}

ordered_json ChatAnswer::delta_json(const std::vector<ReplyDelta>& deltas) const {
  ordered_json told = ordered_json::object();
  ordered_json calls = ordered_json::array();
  for (const ReplyDelta& delta : deltas) {
    if (delta.part == ReplyPart::kReasoning && form_.includes_reasoning && !delta.text.empty()) {
      text_in(told, "reasoning") += delta.text;
      text_in(told, "reasoning_content") += delta.text;
    }
    if (delta.part == ReplyPart::kContent && !delta.text.empty()) text_in(told, "content") += delta.text;
    if (delta.part == ReplyPart::kCallBegin || delta.part == ReplyPart::kCallArguments) add_call(delta, calls);
  }
  if (!calls.empty()) told["tool_calls"] = std::move(calls);
  return told;
}

std::string ChatAnswer::finish_of(const Choice& choice, FinishReason reason) const {
  const bool calls = reason == FinishReason::kStop && choice.reader.num_calls() > 0 && !form_.names_function;
  return calls ? "tool_calls" : finish_name(reason);
}

std::string ChatAnswer::chunk(std::size_t choice, const GenerateEvent& event) {
  Choice& state = *choices_[choice];
  std::string chunks = std::exchange(state.has_begun, true) ? "" : begin(choice);
  ordered_json delta = delta_json(state.reader.read(event));
  const bool is_last = event.finish_reason != FinishReason::kNone;
  const bool has_tokens = tells_tokens() && !event.token_ids.empty();
  if (delta.empty() && !has_tokens && !is_last) return chunks;
  ordered_json told = {{"index", choice}, {"delta", std::move(delta)}, {"logprobs", nullptr}};
  if (has_tokens && form_.has_logprobs) told["logprobs"] = chat_logprobs(event.logprobs, names_);
  told["finish_reason"] = is_last ? ordered_json(finish_of(state, event.finish_reason)) : ordered_json();
  if (is_last) told["stop_reason"] = stop_reason_json(event);
  if (tells_tokens() && form_.returns_token_ids) told["token_ids"] = event.token_ids;
  return chunks + chunk_of(choice, std::move(told));
}

std::string ChatAnswer::last_chunks() {
  if (!form_.head.includes_usage) return kStreamEnd;
  ordered_json data = head_json("chat.completion.chunk");
  data["choices"] = ordered_json::array();
  data["usage"] = usage_json(usage());
  data["system_fingerprint"] = form_.head.fingerprint;
  return server_sent(data) + kStreamEnd;
}

UsageCount ChatAnswer::usage_of(const Choice& choice) const { return choice.reader.usage(std::ssize(prompt_ids_)); }

/// The prompt counts once, however many choices it has.
UsageCount ChatAnswer::usage() const {
  UsageCount usage = usage_of(*choices_.front());
  for (std::size_t i = 1; i < choices_.size(); ++i) {
    const UsageCount more = usage_of(*choices_[i]);
    usage.completion_tokens += more.completion_tokens;
    usage.reasoning_tokens += more.reasoning_tokens;
  }
  return usage;
}

void ChatAnswer::keep(std::size_t choice, const GenerateEvent& event) {
  Choice& state = *choices_[choice];
  for (const ReplyDelta& delta : state.reader.read(event)) state.message.add(delta);
  state.keep(event);
}

/// Without any text the content is null beside a thought or calls that the model chose to make, and "" else.
ordered_json ChatAnswer::message_json(const Choice& choice) const {
  const ReplyMessage& message = choice.message;
  const std::string content = form_.echoed + message.content;
  const bool is_forced = form_.names_function || form_.requires_call;
  const bool has_other = !is_forced && (!message.calls.empty() || !message.reasoning.empty());
  ordered_json told = {{"role", form_.role}, {"content", content.empty() && has_other ? ordered_json() : ordered_json(content)},
                       {"refusal", nullptr}, {"annotations", nullptr},
                       {"audio", nullptr},   {"function_call", nullptr}};
  if (!message.calls.empty()) {
    ordered_json& calls = told["tool_calls"] = ordered_json::array();
    for (const ReplyMessage::Call& call : message.calls) {
      calls.push_back(
          {{"id", new_call_id()}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    }
  }
  const bool tells = form_.includes_reasoning && !message.reasoning.empty();
  told["reasoning"] = tells ? ordered_json(message.reasoning) : ordered_json();
  told["reasoning_content"] = told["reasoning"];
  return told;
}

ordered_json ChatAnswer::choice_json(std::size_t choice) const {
  const Choice& state = *choices_[choice];
  const bool has_logprobs = tells_tokens() && form_.has_logprobs;
  const bool has_ids = tells_tokens() && form_.returns_token_ids;
  return {{"index", choice},
          {"message", message_json(state)},
          {"logprobs", has_logprobs ? chat_logprobs(state.token_logprobs, names_) : ordered_json()},
          {"finish_reason", finish_of(state, state.last.finish_reason)},
          {"stop_reason", stop_reason_json(state.last)},
          {"token_ids", has_ids ? ordered_json(state.token_ids) : ordered_json()}};
}

std::string ChatAnswer::whole() {
  ordered_json data = head_json("chat.completion");
  ordered_json& choices = data["choices"] = ordered_json::array();
  for (std::size_t i = 0; i < choices_.size(); ++i) choices.push_back(choice_json(i));
  const std::vector<TokenLogprobs>& prompt = choices_.front()->prompt_logprobs;
  data["service_tier"] = nullptr;
  data["system_fingerprint"] = form_.head.fingerprint;
  data["usage"] = usage_json(usage());
  data["prompt_logprobs"] = form_.has_prompt_logprobs ? prompt_logprobs(prompt, names_) : ordered_json();
  data["prompt_token_ids"] = form_.returns_token_ids ? ordered_json(prompt_ids_) : ordered_json();
  data["kv_transfer_params"] = nullptr;
  data["metrics"] = nullptr;
  return dump(data);
}

}  // namespace ferry::api::openai

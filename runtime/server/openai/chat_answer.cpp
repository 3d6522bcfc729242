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

/// Opens the object and writes the members that all have.
void ChatAnswer::write_head(const char* object, JsonText& json) const {
  const ordered_json head = head_json(object);
  json.begin_object();
  for (const auto& [name, value] : head.items()) json.member(name, value);
}

/// `write_told` writes the members of the choice behind its index.
template <class Write>
std::string ChatAnswer::chunk_of(std::size_t choice, bool is_first, Write&& write_told) const {
  JsonText json;
  write_head("chat.completion.chunk", json);
  json.key("choices").begin_array().begin_object().member("index", choice);
  write_told(json);
  json.end_object().end_array();
  if (is_first && form_.returns_token_ids) write_token_ids(prompt_ids_, json.key("prompt_token_ids"));
  if (form_.head.has_usage_in_chunks) json.member("usage", usage_json(usage_of(*choices_[choice])));
  json.end_object();
  return server_sent_text(json.take());
}

/// The chunks that a choice begins with.
std::string ChatAnswer::begin(std::size_t choice) {
  const auto told = [&](bool is_first, const ordered_json& delta) {
    return chunk_of(choice, is_first, [&](JsonText& json) {
      json.member("delta", delta).member("logprobs", nullptr).member("finish_reason", nullptr);
    });
  };
  std::string chunks = told(true, {{"role", form_.role}, {"content", ""}});
  if (!form_.echoed.empty()) chunks += told(false, {{"content", form_.echoed}});
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
  const ordered_json delta = delta_json(state.reader.read(event));
  const bool is_last = event.finish_reason != FinishReason::kNone;
  const bool has_tokens = tells_tokens() && !event.token_ids.empty();
  if (delta.empty() && !has_tokens && !is_last) return chunks;
  return chunks + chunk_of(choice, /*is_first=*/false, [&](JsonText& json) {
           json.member("delta", delta).key("logprobs");
           if (has_tokens && form_.has_logprobs) {
             write_chat_logprobs(event.logprobs, names_, json);
           } else {
             json.null();
           }
           json.member("finish_reason", is_last ? ordered_json(finish_of(state, event.finish_reason)) : ordered_json());
           if (is_last) json.member("stop_reason", stop_reason_json(event));
           if (tells_tokens() && form_.returns_token_ids) write_token_ids(event.token_ids, json.key("token_ids"));
         });
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

/// Afterwards nothing of the choice is kept.
void ChatAnswer::write_choice(std::size_t choice, JsonText& json) {
  Choice& state = *choices_[choice];
  json.begin_object().member("index", choice).member("message", message_json(state)).key("logprobs");
  if (tells_tokens() && form_.has_logprobs) {
    write_chat_logprobs(std::exchange(state.token_logprobs, {}), names_, json);
  } else {
    json.null();
  }
  json.member("finish_reason", finish_of(state, state.last.finish_reason));
  json.member("stop_reason", stop_reason_json(state.last)).key("token_ids");
  if (tells_tokens() && form_.returns_token_ids) {
    write_token_ids(std::exchange(state.token_ids, {}), json);
  } else {
    json.null();
  }
  json.end_object();
}

std::string ChatAnswer::whole() {
  std::size_t num_bytes = form_.has_prompt_logprobs ? logprobs_text_bytes(choices_.front()->prompt_logprobs) : 0;
  for (const auto& choice : choices_) num_bytes += logprobs_text_bytes(choice->token_logprobs);
  JsonText json(num_bytes);
  write_head("chat.completion", json);
  json.key("choices").begin_array();
  for (std::size_t i = 0; i < choices_.size(); ++i) write_choice(i, json);
  json.end_array();
  json.member("service_tier", nullptr).member("system_fingerprint", form_.head.fingerprint);
  json.member("usage", usage_json(usage())).key("prompt_logprobs");
  if (form_.has_prompt_logprobs) {
    write_prompt_logprobs(std::exchange(choices_.front()->prompt_logprobs, {}), names_, json);
  } else {
    json.null();
  }
  json.key("prompt_token_ids");
  if (form_.returns_token_ids) {
    write_token_ids(prompt_ids_, json);
  } else {
    json.null();
  }
  json.member("kv_transfer_params", nullptr).member("metrics", nullptr).end_object();
  return json.take();
}

}  // namespace ferry::api::openai

#include "runtime/server/generate_request.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/schedule/sampling_params.h"
#include "runtime/server/message_media.h"
#include "runtime/server/request_bounds.h"
#include "runtime/text/chat_template.h"

namespace ferry {
namespace {

constexpr int64_t kTokenIdBytesMax = 5;      // of one id as protobuf writes it
constexpr int64_t kFramingBytes = 64 << 10;  // of a request beside prompt and stop strings: ids that stop, field headers
constexpr int64_t kMessageFramingBytes =
    16;  // of one chat message beside its content: field headers and the role; more than a bias

int64_t prompt_bytes_of(const v1::GenerateRequest& message) {
  if (message.input_case() == v1::GenerateRequest::kText) return std::ssize(message.text());
  int64_t num_bytes = 0;
  for (const v1::ChatMessage& turn : message.chat().messages()) {
    num_bytes += std::ssize(turn.role()) + std::ssize(turn.content());
    for (const v1::Part& part : turn.parts()) num_bytes += std::ssize(part.text());
  }
  return num_bytes;
}

/// The roles that the messages of ferry.v1 may have, whatever the checkpoint's template knows beside them.
void check_roles(const v1::Chat& chat) {
  for (int m = 0; m < chat.messages_size(); ++m) {
    const std::string& role = chat.messages(m).role();
    const std::string where = "chat.messages[" + std::to_string(m) + "].role is '" + role + "'";
    if (role == "system" && m != 0) throw_invalid(where + "; allowed: for the first message only");
    if (role != "system" && role != "user" && role != "assistant")
      throw_invalid(where + "; allowed: system, user and assistant");
  }
}

std::vector<TokenId> encode_chat(const EngineClient& engine, const v1::Chat& chat, MessageMedia& media,
                                 const std::function<void()>& check_in) {
  if (chat.messages().empty()) throw_invalid("chat.messages is empty, at least one message is needed");
  ChatInput input;
  switch (chat.thinking()) {
    case v1::Chat::THINKING_UNSPECIFIED: break;
    case v1::Chat::THINKING_ON: input.thinking = true; break;
    case v1::Chat::THINKING_OFF: input.thinking = false; break;
    default:
      throw_invalid("chat.thinking is " + std::to_string(chat.thinking()) + ", allowed are 0 (default), 1 (on) and 2 (off)");
  }
  check_roles(chat);
  for (const v1::ChatMessage& message : chat.messages())
    input.messages.push_back({{"role", message.role()}, {"content", media.read(message)}});
  return engine.encode_chat(input, check_in);
}

/// What changes logits.
void add_filters(const v1::Sampling& sampling, SamplingParams& params) {
  if (sampling.has_min_p()) params.min_p = sampling.min_p();
  if (sampling.has_repetition_penalty()) params.repetition_penalty = sampling.repetition_penalty();
  params.presence_penalty = sampling.presence_penalty();
  params.frequency_penalty = sampling.frequency_penalty();
  for (const auto& [id, bias] : sampling.logit_bias()) params.logit_bias.push_back({id, bias});
  params.allowed_token_ids.assign(sampling.allowed_token_ids().begin(), sampling.allowed_token_ids().end());
  for (const v1::TokenIds& word : sampling.bad_words()) params.bad_words.emplace_back(word.ids().begin(), word.ids().end());
}

}  // namespace

void check_bounds(const v1::GenerateRequest& message, const ServerLimits& limits) {
  check_request_id("request_id", message.request_id());
  check_cache_salt("cache_salt", message.cache_salt());
  check_media(message, limits);
  const int64_t num_bytes = prompt_bytes_of(message);
  if (num_bytes > limits.prompt_bytes) {
    refuse_size(message.input_case() == v1::GenerateRequest::kText ? "text" : "chat", num_bytes, "bytes", limits.prompt_bytes);
  }
  if (message.chat().messages_size() > limits.chat_messages)
    refuse_size("chat", message.chat().messages_size(), "messages", limits.chat_messages);
  check_stop_strings("stop", message.sampling().stop(), limits);
}

int64_t longest_message(const ServerLimits& limits, const PromptBounds& bounds, int64_t vocab_size) {
  const int64_t chat_framing = limits.chat_messages * kMessageFramingBytes;
  const int64_t prompt = std::max(limits.prompt_bytes + chat_framing, bounds.max_tokens * kTokenIdBytesMax);
  const int64_t stops = limits.stop_strings * (limits.stop_bytes + kMessageFramingBytes);
  const int64_t filters = vocab_size * kTokenIdBytesMax + kMaxLogitBiases * kMessageFramingBytes +
                          kMaxBadWords * (kMaxBadWordTokens * kTokenIdBytesMax + kMessageFramingBytes);
  const int64_t needed = prompt + stops + filters + kFramingBytes;
  return std::min(needed, limits.grpc_message_bytes);
}

MediaPrompt prompt_of(const EngineClient& engine, const v1::GenerateRequest& message, const PromptTask& task) {
  if (message.input_case() == v1::GenerateRequest::INPUT_NOT_SET)
    throw_invalid("the request has no input, one of text, chat and token_ids is needed");
  FERRY_CHECK(task.check_in || !has_media(message)) << "files are read without looking after the call";
  MessageMedia media(engine, task);
  MediaPrompt prompt;
  if (message.has_text()) prompt.ids = engine.encode_text(message.text(), task.check_in);
  if (message.has_token_ids()) prompt.ids.assign(message.token_ids().ids().begin(), message.token_ids().ids().end());
  if (message.has_chat()) prompt.ids = encode_chat(engine, message.chat(), media, task.check_in);
  for (const v1::Part& part : message.media()) media.read(part);
  return media.media().empty() ? prompt : engine.media().place(prompt.ids, media.media());
}

SamplingParams sampling_of(const v1::Sampling& sampling) {
  SamplingParams params;
  if (sampling.has_temperature()) params.temperature = sampling.temperature();
  if (sampling.has_top_p()) params.top_p = sampling.top_p();
  if (sampling.has_top_k()) params.top_k = sampling.top_k();
  if (sampling.has_seed()) params.seed = sampling.seed();
  if (sampling.has_max_tokens()) params.max_tokens = sampling.max_tokens();
  params.ignore_eos = sampling.ignore_eos();
  params.stop_token_ids.assign(sampling.stop_token_ids().begin(), sampling.stop_token_ids().end());
  params.stop.assign(sampling.stop().begin(), sampling.stop().end());
  params.min_tokens = sampling.min_tokens();
  params.includes_stop = sampling.includes_stop();
  add_filters(sampling, params);
  if (sampling.has_logprobs()) params.logprobs = sampling.logprobs();
  if (sampling.has_prompt_logprobs()) params.prompt_logprobs = sampling.prompt_logprobs();
  return params;
}

}  // namespace ferry

#include "runtime/server/openai/chat_task.h"

#include <utility>

#include "runtime/server/api/answer_head.h"
#include "runtime/server/openai/chat_answer.h"
#include "runtime/server/openai/chat_request.h"

namespace ferry::api::openai {
namespace {

/// What a chat's answer says that is no part of the conversation.
struct ChatManner {
  bool includes_reasoning;
  std::string role;
  std::string echoed;
};

ChatForm chat_form_of(const Conversation& chat, const ChatManner& manner, const ReplyReading& reading,
                      const ApiSettings& settings) {
  const GenerationFields& fields = chat.generation;
  return {.head = answer_head("chatcmpl-", fields, settings),
          .num_choices = fields.num_choices,
          .role = manner.role,
          .echoed = manner.echoed,
          .has_logprobs = fields.sampling.logprobs.has_value(),
          .has_prompt_logprobs = fields.sampling.prompt_logprobs.has_value(),
          .returns_token_ids = fields.returns_token_ids,
          .includes_reasoning = manner.includes_reasoning,
          .names_function = chat.tool_choice.kind == ToolChoice::Kind::kNamed,
          .requires_call = chat.tool_choice.kind == ToolChoice::Kind::kRequired,
          .shows_special = reading.shows_special,
          .parallel_tool_calls = reading.parallel_tool_calls,
          .starts_in_reasoning = reading.starts_in_reasoning};
}

}  // namespace

std::unique_ptr<ApiTask> read_chat_task(const HttpRequest& request, const EngineClient& engine, GrammarEngine& grammars,
                                        const ApiSettings& settings) {
  const ordered_json body = read_body(request.body, settings.limits);
  ChatRequest chat = parse_chat(body, request, settings);
  const ChatManner manner{
      .includes_reasoning = chat.includes_reasoning, .role = std::move(chat.role), .echoed = std::move(chat.echoed)};
  const MakeAnswer make = [manner, &engine, &settings](const Conversation& conversation, ReplyReading reading) {
    const TokenNames names(engine.tokenizer(), conversation.generation.shows_ids_as_tokens);
    return std::make_unique<ChatAnswer>(chat_form_of(conversation, manner, reading, settings), std::move(reading.tools),
                                        std::move(reading.prompt_ids), names);
  };
  return conversation_task(std::move(chat), "chatcmpl-", make, engine, grammars);
}

}  // namespace ferry::api::openai

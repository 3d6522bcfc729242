#include "runtime/server/anthropic/message_routes.h"

#include <chrono>
#include <string>
#include <utility>

#include "runtime/server/anthropic/message_answer.h"
#include "runtime/server/anthropic/message_error.h"
#include "runtime/server/anthropic/message_request.h"
#include "runtime/server/api/api_error.h"
#include "runtime/server/api/call_route.h"
#include "runtime/server/api/prompt_making.h"
#include "runtime/server/http/router.h"

namespace ferry::api::anthropic {
namespace {

constexpr const char* kIdPrefix = "msg_";
constexpr std::chrono::seconds kCountTime{60};  // for a prompt's pictures

std::unique_ptr<ApiTask> read_message_task(const HttpRequest& request, const EngineClient& engine, GrammarEngine& grammars,
                                           const ApiSettings& settings) {
  const ordered_json body = read_body(request.body, settings.limits);
  MessageRequest message = parse_message(body, request, settings);
  const MakeAnswer make = [shows_thought = message.shows_thought, &engine, &settings](const Conversation& conversation,
                                                                                      ReplyReading reading) {
    MessageAnswer::Form form{.id = kIdPrefix + conversation.generation.request_id,
                             .model = settings.model_names.front(),
                             .shows_thought = shows_thought};
    return std::make_unique<MessageAnswer>(std::move(form), std::move(reading), engine.tokenizer());
  };
  return conversation_task(std::move(message.conversation), kIdPrefix, make, engine, grammars);
}

HttpResponse count_tokens(const HttpRequest& request, const ApiContext& context) {
  try {
    const ordered_json body = read_body(request.body, context.settings.limits);
    const RequestFields fields(body);
    check_model(fields, context.settings);
    const ChatPrompt prompt = parse_message_prompt(fields, context.settings);
    const auto check_in = [&] {
      if (request.check_in) request.check_in();
      if (const auto failure = context.engine.failure()) throw *failure;
    };
    const PromptTask task{
        .limits = context.settings.limits, .check_in = check_in, .deadline = std::chrono::steady_clock::now() + kCountTime};
    const MediaPrompt made = encode_chat(context.engine, prompt, {}, task);
    return {.status = 200, .body = dump({{"input_tokens", made.ids.size()}})};
  } catch (const std::exception&) {
    return message_errors().response(current_error());
  }
}

}  // namespace

void add_message_routes(HttpRouter& router, ApiContext& context) {
  for (const std::string prefix : {"/v1", ""}) {
    add_call_route(router, prefix + "/messages", context, read_message_task, message_errors());
    const auto count = [&context](const HttpRequest& request) { return count_tokens(request, context); };
    router.add("POST", prefix + "/messages/count_tokens",
               {.handler = {}, .blocking = count, .reword = message_errors().reword, .watches_client = true});
  }
}

}  // namespace ferry::api::anthropic

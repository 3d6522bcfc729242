#include "runtime/server/anthropic/message_routes.h"

#include <string>
#include <utility>

#include "runtime/server/anthropic/message_answer.h"
#include "runtime/server/anthropic/message_error.h"
#include "runtime/server/anthropic/message_request.h"
#include "runtime/server/anthropic/token_count.h"
#include "runtime/server/api/api_error.h"
#include "runtime/server/api/call_route.h"
#include "runtime/server/http/router.h"

namespace ferry::api::anthropic {
namespace {

constexpr const char* kIdPrefix = "msg_";

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

}  // namespace

void add_message_routes(HttpRouter& router, ApiContext& context) {
  for (const std::string prefix : {"/v1", ""}) {
    add_call_route(router, prefix + "/messages", context, read_message_task, message_errors());
    const auto count = [&context](HttpRequest request, HttpReply reply) {
      start_token_count(context, std::move(request), std::move(reply));
    };
    router.add("POST", prefix + "/messages/count_tokens",
               {.handler = count, .blocking = {}, .reword = message_errors().reword});
  }
}

}  // namespace ferry::api::anthropic

#include "runtime/server/openai/responses_routes.h"
#include "runtime/server/openai/openai_error.h"

#include <string>
#include <utility>

#include "runtime/server/api/answer_head.h"
#include "runtime/server/api/call_route.h"
#include "runtime/server/http/router.h"
#include "runtime/server/openai/responses_answer.h"
#include "runtime/server/openai/responses_request.h"

namespace ferry::api::openai {
namespace {

constexpr const char* kResponseIdPrefix = "resp_";

std::unique_ptr<ApiTask> read_responses_task(const HttpRequest& request, const EngineClient& engine, GrammarEngine& grammars,
                                             const ApiSettings& settings) {
  const ordered_json body = read_body(request.body, settings.limits);
  ResponsesRequest read = parse_responses(body, request, settings);
  const MakeAnswer make = [echoed = std::move(read.echoed), returns_thought = read.returns_thought, &engine, &settings](
                              const Conversation& conversation, ReplyReading reading) {
    const AnswerHead head = answer_head(kResponseIdPrefix, conversation.generation, settings);
    ResponsesAnswer::Form form{
        .id = head.id, .model = head.model, .created = head.created, .echoed = echoed, .returns_thought = returns_thought};
    reading.closes_cut_calls = false;
    return std::make_unique<ResponsesAnswer>(std::move(form), std::move(reading), engine.tokenizer());
  };
  return conversation_task(std::move(read.conversation), kResponseIdPrefix, make, engine, grammars);
}

}  // namespace

void add_responses_routes(HttpRouter& router, ApiContext& context) {
  for (const std::string prefix : {"/v1", ""}) {
    add_call_route(router, prefix + "/responses", context, read_responses_task, openai_errors());
    const auto find = [](const HttpRequest&, HttpReply reply) {
      reply.send(ApiError(404, "NotFoundError", "responses are not stored here", "response_id").response());
    };
    router.add("GET", prefix + "/responses/*", {.handler = find, .blocking = {}});
  }
}

}  // namespace ferry::api::openai

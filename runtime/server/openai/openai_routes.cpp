#include "runtime/server/openai/openai_routes.h"

#include <string>

#include "runtime/server/api/call_route.h"
#include "runtime/server/http/router.h"
#include "runtime/server/openai/chat_task.h"
#include "runtime/server/openai/completion_task.h"
#include "runtime/server/openai/info_routes.h"
#include "runtime/server/openai/openai_error.h"
#include "runtime/server/openai/responses_routes.h"
#include "runtime/server/openai/token_routes.h"

namespace ferry::api::openai {

void add_openai_routes(HttpRouter& router, ApiContext& context) {
  for (const std::string prefix : {"/v1", ""}) {
    add_call_route(router, prefix + "/completions", context, read_completion_task, openai_errors());
    add_call_route(router, prefix + "/chat/completions", context, read_chat_task, openai_errors());
  }
  add_responses_routes(router, context);
  add_info_routes(router, context);
  add_token_routes(router, context.engine, context.settings);
}

}  // namespace ferry::api::openai

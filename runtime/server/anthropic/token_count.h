#pragma once

#include "runtime/server/http/reply.h"

namespace ferry::api {
struct ApiContext;
}

namespace ferry::api::anthropic {

/// Answers POST …/count_tokens. Prompts are made on the threads that make those of other calls, step by step, so pictures that
/// hang hold up no other route. Call it on the I/O thread. `context` must outlive the answer.
void start_token_count(ApiContext& context, HttpRequest request, HttpReply reply);

}  // namespace ferry::api::anthropic

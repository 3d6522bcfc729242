#pragma once

#include "runtime/server/api/conversation.h"
#include "runtime/server/api/request_fields.h"

namespace ferry::api::openai {

/// POST /v1/responses.
struct ResponsesRequest {
  Conversation conversation;
  ordered_json echoed = ordered_json::object();  // fields that the answer says again, as they are meant
  bool returns_thought = false;                  // `encrypted_content`, for clients that give back nothing else of a thought
};

/// Throws ApiError, and Error for tools that are none.
ResponsesRequest parse_responses(const ordered_json& body, const HttpRequest& request, const ApiSettings& settings);

}  // namespace ferry::api::openai

#pragma once

#include "runtime/server/api/conversation.h"
#include "runtime/server/api/request_fields.h"

namespace ferry::api::anthropic {

/// POST /v1/messages.
struct MessageRequest {
  Conversation conversation;
  bool shows_thought = true;  // false: a thought is told without its text
};

/// Both throw ApiError, and Error for tools that are none.
MessageRequest parse_message(const ordered_json& body, const HttpRequest& request, const ApiSettings& settings);
/// What of a request makes its prompt: the same for POST /v1/messages/count_tokens.
ChatPrompt parse_message_prompt(const RequestFields& fields, const ApiSettings& settings);

}  // namespace ferry::api::anthropic

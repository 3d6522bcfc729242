#pragma once

#include "runtime/server/openai/conversation.h"
#include "runtime/server/openai/request_fields.h"

namespace ferry::anthropic {

using openai::ordered_json;

/// POST /v1/messages.
struct MessageRequest {
  openai::Conversation conversation;
  bool shows_thought = true;  // false: a thought is told without its text
};

/// Both throw ApiError, and Error for tools that are none.
MessageRequest parse_message(const ordered_json& body, const HttpRequest& request, const openai::ApiSettings& settings);
/// What of a request makes its prompt: the same for POST /v1/messages/count_tokens.
openai::ChatPrompt parse_message_prompt(const openai::RequestFields& fields, const openai::ApiSettings& settings);

}  // namespace ferry::anthropic

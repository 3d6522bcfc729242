#pragma once

#include <string>
#include <vector>

#include "runtime/server/api/conversation.h"

namespace ferry::api::openai {

/// POST /v1/chat/completions.
struct ChatRequest : Conversation {
  bool includes_reasoning = true;
  std::string role;    // of the answer
  std::string echoed;  // text of the last message, if the answer begins with it
};

/// All throw ApiError, and Error for tools that are none.
ChatPrompt parse_chat_prompt(const RequestFields& fields, const ApiSettings& settings);
ChatRequest parse_chat(const ordered_json& body, const HttpRequest& request, const ApiSettings& settings);

}  // namespace ferry::api::openai

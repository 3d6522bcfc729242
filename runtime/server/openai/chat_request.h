#pragma once

#include <string>
#include <vector>

#include "runtime/server/openai/conversation.h"

namespace ferry::openai {

/// POST /v1/chat/completions.
struct ChatRequest : Conversation {
  bool includes_reasoning = true;
  std::string role;    // of the answer
  std::string echoed;  // text of the last message, if the answer begins with it
};

/// All throw ApiError, and Error for tools that are none.
ChatPrompt parse_chat_prompt(const RequestFields& fields, const ApiSettings& settings);
ChatRequest parse_chat(const ordered_json& body, const HttpRequest& request, const ApiSettings& settings);

// For all APIs that have an assistant answer.
/// Variables of the template: the server's, then `chat_template_kwargs`, then those that other fields set.
ordered_json read_template_kwargs(const RequestFields& fields, const ApiSettings& settings);
/// Has the template know how hard to think, "none" to "max", and that it is to think at all unless `has_own_thinking`.
/// `field` is where the request says so.
void set_effort(const std::optional<std::string>& effort, const std::string& field, bool has_own_thinking,
                ordered_json& kwargs);
/// Functions in OpenAI's form, which the template gets and calls are read by.
void set_tools(ordered_json tools, const ServerLimits& limits, ChatPrompt& prompt);

}  // namespace ferry::openai

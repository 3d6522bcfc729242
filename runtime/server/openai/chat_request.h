#pragma once

#include <string>
#include <vector>

#include "runtime/server/openai/generation_fields.h"
#include "runtime/text/chat_template.h"
#include "runtime/text/reply/tool_set.h"

namespace ferry::openai {

/// What of a request makes a prompt: of /v1/chat/completions, and of /tokenize and /apply-template with messages.
struct ChatPrompt {
  ChatInput input;
  std::vector<std::string> picture_urls;
  ToolSet tools;
};

/// POST /v1/chat/completions.
struct ChatRequest {
  GenerationFields generation;
  ChatPrompt prompt;
  ToolChoice tool_choice;
  bool parallel_tool_calls = true;  // false: calls behind the first are dropped
  bool includes_reasoning = true;
  std::string role;    // of the answer
  std::string echoed;  // text of the last message, if the answer begins with it
};

/// Both throw ApiError, and Error for tools that are none.
ChatPrompt parse_chat_prompt(const RequestFields& fields, const ApiSettings& settings);
ChatRequest parse_chat(const ordered_json& body, const HttpRequest& request, const ApiSettings& settings);

}  // namespace ferry::openai

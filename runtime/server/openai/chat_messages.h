#pragma once

#include <string>

#include "runtime/server/api/chat_builder.h"

namespace ferry::api::openai {

/// Checks and reads `messages`: of each its role, content, name, reasoning, tool_calls and tool_call_id. Content parts become
/// {"type":"text","text":…} and {"type":"image"}, arguments of tool calls the objects that their text is, and a thought has the
/// names `reasoning` and `reasoning_content`, whichever it came by. Roles are left to the template. Throws ApiError.
ChatMessages read_messages(const ordered_json& messages, const ServerLimits& limits);

/// The text of a message's content: of parts, their texts, a line each.
std::string text_of(const ordered_json& content);

}  // namespace ferry::api::openai

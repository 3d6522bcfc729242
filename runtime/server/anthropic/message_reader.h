#pragma once

#include "runtime/server/openai/chat_builder.h"

namespace ferry::anthropic {

using openai::ordered_json;

/// Reads `system` and `messages` of Anthropic's form. Text, images, calls of tools and thoughts become what OpenAI's messages
/// say of them, and each result of a tool a message of its own. Blocks of other types are refused. Throws ApiError.
openai::ChatMessages read_conversation(const openai::RequestFields& fields, const ServerLimits& limits);

}  // namespace ferry::anthropic

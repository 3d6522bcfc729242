#pragma once

#include "runtime/server/api/chat_builder.h"

namespace ferry::api::anthropic {

/// Reads `system` and `messages` of Anthropic's form. Text, images, calls of tools and thoughts become what OpenAI's messages
/// say of them, and each result of a tool a message of its own. Blocks of other types are refused. Throws ApiError.
ChatMessages read_conversation(const RequestFields& fields, const ServerLimits& limits);

}  // namespace ferry::api::anthropic

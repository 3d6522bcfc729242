#pragma once

#include "runtime/server/api/chat_builder.h"

namespace ferry::api::openai {

/// Reads `instructions` and `input` of POST /v1/responses: a text, or a list of items. Instructions and what the system or the
/// developer says before anybody else are one message of the system; thoughts, texts and calls of the assistant in a row are
/// one of its messages, and each call's output is a message. Items of other types are refused. Throws ApiError.
ChatMessages read_responses_input(const RequestFields& fields, const ServerLimits& limits);

}  // namespace ferry::api::openai

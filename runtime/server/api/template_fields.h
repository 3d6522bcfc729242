#pragma once

#include <optional>
#include <string>

#include "runtime/server/api/conversation.h"

namespace ferry::api {

/// Variables of the template: the server's, then `chat_template_kwargs`, then those that other fields set.
ordered_json read_template_kwargs(const RequestFields& fields, const ApiSettings& settings);
/// Has the template know how hard to think, "none" to "max", and that it is to think at all unless `has_own_thinking`.
/// `field` is where the request says so.
void set_effort(const std::optional<std::string>& effort, const std::string& field, bool has_own_thinking,
                ordered_json& kwargs);
/// Functions in OpenAI's form, which the template gets and calls are read by.
void set_tools(ordered_json tools, const ServerLimits& limits, ChatPrompt& prompt);

}  // namespace ferry::api

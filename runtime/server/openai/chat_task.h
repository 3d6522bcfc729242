#pragma once

#include <memory>

#include "runtime/server/api/api_task.h"
#include "runtime/server/api/settings.h"

namespace ferry {
class EngineClient;
class GrammarEngine;
}  // namespace ferry

namespace ferry::api::openai {

/// What POST /v1/chat/completions asks for. What it borrows must outlive the task. Throws ApiError.
std::unique_ptr<ApiTask> read_chat_task(const HttpRequest& request, const EngineClient& engine, GrammarEngine& grammars,
                                        const ApiSettings& settings);

}  // namespace ferry::api::openai

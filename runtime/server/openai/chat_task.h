#pragma once

#include <memory>

#include "runtime/server/openai/api_task.h"
#include "runtime/server/openai/settings.h"

namespace ferry {
class EngineClient;
}

namespace ferry::openai {

/// What POST /v1/chat/completions asks for. Both must outlive the task. Throws ApiError.
std::unique_ptr<ApiTask> read_chat_task(const HttpRequest& request, const EngineClient& engine, const ApiSettings& settings);

}  // namespace ferry::openai

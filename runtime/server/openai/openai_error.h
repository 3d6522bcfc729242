#pragma once

#include "runtime/server/api/api_task.h"

namespace ferry::api::openai {

inline constexpr const char* kStreamEnd = "data: [DONE]\n\n";

/// An ApiError's own words; of a stream, an event before its end.
ErrorForm openai_errors();

}  // namespace ferry::api::openai

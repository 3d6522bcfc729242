#pragma once

#include "runtime/server/openai/api_task.h"

namespace ferry::anthropic {

/// Anthropic's: {"type":"error","error":{"type":…,"message":…}}, where the inner type stands for the status; of a stream that
/// has begun an event `error`.
openai::ErrorForm message_errors();

}  // namespace ferry::anthropic

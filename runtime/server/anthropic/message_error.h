#pragma once

#include "runtime/server/api/api_task.h"

namespace ferry::api::anthropic {

/// Anthropic's: {"type":"error","error":{"type":…,"message":…}}, where the inner type stands for the status; of a stream that
/// has begun an event `error`.
ErrorForm message_errors();

}  // namespace ferry::api::anthropic

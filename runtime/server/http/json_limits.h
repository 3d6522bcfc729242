#pragma once

#include "runtime/base/json.h"
#include "runtime/options/server_limits.h"

namespace ferry {

/// Of a body that asks something of the model; routes that take less have bounds of their own.
inline JsonLimits model_json_limits(const ServerLimits& limits) {
  return {.depth = static_cast<int>(limits.http_json_depth),
          .bytes = limits.http_body_bytes,
          .values = limits.http_json_values,
          .duplicates = DuplicateKeys::kRefuse};
}

}  // namespace ferry

#pragma once

#include "runtime/base/error.h"

namespace ferry {

/// What a caller learns of a request that an allocation failed for.
inline Error out_of_memory() { return {ErrorCode::kUnavailable, "the server is out of memory; try again"}; }

}  // namespace ferry

#pragma once

#include "runtime/base/error.h"

namespace ferry {

/// Returns the error of a request for which an allocation failed.
inline Error out_of_memory() { return {ErrorCode::kUnavailable, "the server is out of memory; try again"}; }

}  // namespace ferry

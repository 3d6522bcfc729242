#pragma once

#include <grpcpp/support/status.h>

#include "runtime/base/error.h"

namespace ferry {

/// What a caller gets to see of an Error.
grpc::Status to_status(const Error& error);

}  // namespace ferry

#pragma once

#include <grpcpp/support/status.h>

#include "runtime/base/error.h"
#include "runtime/coordinator.h"

namespace ferry {

/// What a caller gets to see of an Error.
grpc::Status to_status(const Error& error);

/// Returns what the exception that is being handled means to a caller.
grpc::Status current_status();

/// The status of a call whose request ended with `event`.
grpc::Status status_of(const GenerateEvent& event);

}  // namespace ferry

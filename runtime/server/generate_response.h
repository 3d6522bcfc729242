#pragma once

#include <grpcpp/support/status.h>

#include "ferry/v1/inference.pb.h"
#include "runtime/coordinator.h"

// What the coordinator's events are in ferry.v1.Inference/Generate.

namespace ferry {

v1::GenerateResponse to_response(const GenerateEvent& event);

/// Puts `next` behind `response`, as one message that means both.
void append(v1::GenerateResponse& response, v1::GenerateResponse next);

/// The status of a stream whose request ended with `event`.
grpc::Status status_of(const GenerateEvent& event);

}  // namespace ferry

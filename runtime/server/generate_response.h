#pragma once

#include "ferry/v1/inference.pb.h"
#include "runtime/coordinator.h"

// What the coordinator's events are in ferry.v1.Inference/Generate.

namespace ferry {

v1::GenerateResponse to_response(const GenerateEvent& event);

/// Puts `next` behind `response`, as one message that means both.
void append(v1::GenerateResponse& response, v1::GenerateResponse next);

}  // namespace ferry

#pragma once

#include <string>

#include "moe/routing/routing_trace.h"

// A trace in the shapes of other tools.

namespace ferry {

/// "layer,expert,rows,touched" and a line for each layer and expert, unused ones included: rows that it was given, steps that
/// gave it any.
std::string routing_csv(const RoutingTrace& trace);

/// A .npy file (format 1.0) of int16 [rows, layers, top_k], all steps' rows one after the other: the shape of vLLM's
/// routed_experts.
std::string routing_npy(const RoutingTrace& trace);

/// What `path`'s ending asks for: .csv, .npy, .json (loads, moe/placement/load_file.h) or .ferryrt. Throws
/// Error{kInvalidArgument} for any other.
std::string routing_as(const RoutingTrace& trace, const std::string& path);

}  // namespace ferry

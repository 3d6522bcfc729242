#pragma once

#include "moe/routing/routing_trace.h"
#include "profiler/capture.h"

namespace ferry {

/// Which experts rows take: what routers chose where the capture recorded it, else rows drawn so that each expert of a layer
/// is asked for as often as it was counted. Without a step where the capture knows nothing of experts.
RoutingTrace routing_of(const Capture& capture);

}  // namespace ferry

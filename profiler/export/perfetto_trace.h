#pragma once

#include <iosfwd>

#include "profiler/report/timeline/report_input.h"

namespace ferry {

/// Writes the whole capture as one Perfetto protobuf trace (`trace.pftrace`): pid = rank, a track per lane, flow arrows from
/// dispatch over the experts to combine, counters. Throws Error{kUnavailable} if the stream fails.
void write_perfetto_trace(const ReportInput& input, std::ostream& out);

}  // namespace ferry

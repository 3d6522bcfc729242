#pragma once

#include <iosfwd>

#include "profiler/report/timeline/report_input.h"

namespace ferry {

/// Writes the whole capture as Chrome trace JSON (`trace.json`) in the dialect that chrome://tracing, Perfetto, MindStudio
/// Insight and HolisticTraceAnalysis all read. Throws Error{kUnavailable} if the stream fails.
void write_chrome_trace(const ReportInput& input, std::ostream& out);

}  // namespace ferry

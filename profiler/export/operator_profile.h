#pragma once

#include <string>

#include "profiler/report/timeline/report_input.h"

namespace ferry {

/// The own time of all operators and host work as the bytes of a pprof file (profiler/export/pprof.h): rank, phase, layer type,
/// part and operator are the frames of a stack, nanoseconds and how many there were its values. The figures are those of the
/// operator table.
std::string encode_operator_profile(const ReportInput& input);

}  // namespace ferry

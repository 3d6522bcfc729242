#pragma once

#include <ostream>
#include <string>

#include "profiler/report/timeline/report_input.h"

namespace ferry {

/// Sampled stacks of all ranks as the bytes of a pprof file (profiler/export/pprof.h): outside of the functions stand rank and
/// phase; samples and nanoseconds of CPU time are its values.
std::string encode_stack_profile(const ReportInput& input);

/// The same for https://www.speedscope.app: one profile a rank and phase, weights in nanoseconds
/// (https://www.speedscope.app/file-format-schema.json).
void write_speedscope(const ReportInput& input, std::ostream& out);

}  // namespace ferry

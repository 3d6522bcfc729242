#pragma once

#include <filesystem>

#include "profiler/capture.h"

namespace ferry {

/// Writes a capture and all that is derived from it: trace.pftrace, trace.json, a *_ascend_pt folder per rank, report.txt,
/// report.html, report.json and csv/. Throws Error{kUnavailable} with the system's reason; what was written stays.
void write_capture_files(const std::filesystem::path& directory, Capture capture);

/// The derived files alone, of a capture that was read from somewhere.
void write_derived_files(const std::filesystem::path& directory, Capture capture);

}  // namespace ferry

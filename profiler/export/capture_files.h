#pragma once

#include <cstddef>
#include <filesystem>

#include "profiler/capture.h"
#include "profiler/report/findings/findings.h"

namespace ferry {

/// Writes a capture and what is derived from it: report.txt, report.html, report.json, csv/, trace.pftrace, profile.pb.gz and,
/// unless it has more than kMaxTextSpans, trace.json, a *_ascend_pt folder per rank and kineto/, which take most of the room;
/// of a merged capture trace.pftrace and trace.json alone. Throws Error{kUnavailable} with the system's reason; what was
/// written stays.
void write_capture_files(const std::filesystem::path& directory, Capture capture, FindFindings find = find_problems);

inline constexpr std::size_t kMaxTextSpans = 2'000'000;  // about 4 GB of text and tables

/// All derived files, whatever their size.
void write_derived_files(const std::filesystem::path& directory, Capture capture, FindFindings find = find_problems);

}  // namespace ferry

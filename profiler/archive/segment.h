#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "profiler/archive/kept_step.h"

// A segment: one kept step, or an anomaly with the steps before it, as one file that is whole or not there.
//
//   "FERRYSEG" | u32 format | u32 bytes of the head | head, JSON | parts of the ranks, each as a rank's file of a capture
//
// The head says how many bytes each part has. In format 1 they follow as they are, in format 2 packed (packed_records.h).
//
// What does not change while a server runs (model, limits, who holds what) is a file beside the segments that the head names,
// as text of capture.json. Readers trust neither.

namespace ferry {

inline constexpr const char* kSegmentEnding = ".ferryseg";
inline constexpr int64_t kMaxSegmentBytes = int64_t{1} << 28;

/// What the archive's index says of a segment; the rest is in its file.
struct SegmentEntry {
  std::string file;     // its name, without a folder
  std::string run;      // name of the run's file
  int64_t time_ns = 0;  // when the kept step began, since 1970
  KeptFor why = KeptFor::kSample;
  StepFacts facts;    // without ticks
  int64_t bytes = 0;  // of the file
};

/// An entry as one line of JSON without its end, and back. Throws Error{kInvalidArgument} that names `source`.
std::string entry_text(const SegmentEntry& entry);
SegmentEntry parse_entry(std::string_view text, const std::string& source);

/// What of `info` is the run's: without times, counts and events.
CaptureInfo run_info(const CaptureInfo& info);

/// The bytes of a segment's file; `entry.bytes` and `entry.file` are not looked at. Throws Error{kResourceExhausted} if it
/// would have more than readers take.
std::string encode_segment(const SegmentEntry& entry, const Capture& capture);

/// What the head says; `bytes` may be the file's first ones only. Throws Error{kInvalidArgument} that names `source`.
SegmentEntry read_segment_entry(std::string_view bytes, const std::string& source);
inline constexpr int64_t kMaxHeadBytes = int64_t{1} << 22;

/// The capture, given what is the run's.
Capture decode_segment(std::string_view bytes, const CaptureInfo& run, const std::string& source);

/// A segment's file with the run's beside it: a capture as any. Throws Error{kNotFound} if one of them is not there.
Capture read_segment(const std::filesystem::path& path);

}  // namespace ferry

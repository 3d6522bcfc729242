#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "profiler/capture.h"
#include "profiler/capture_window.h"

// What a rank's file holds behind its spans: sections, each of a kind of its own, which a capture may have or not. Who adds one
// gives RankCapture a member, writes its codec, and names it in capture_sections.cpp; files, windows and merges then carry it.

namespace ferry {

/// One kind of section. Its functions see nothing of a RankCapture but its own member, and its begin and end.
struct CaptureSection {
  const char* name;  // in the file's header: "counters"

  /// The member's bytes; empty if there is nothing to keep: then the file has no such section.
  std::vector<std::byte> (*encode)(const RankCapture& rank);

  /// Fills the member. `source` names file and section for errors. Throws Error{kInvalidArgument}.
  void (*decode)(std::span<const std::byte> bytes, const std::string& source, RankCapture& rank);

  /// Drops what lies outside of `window`; rank.begin and rank.end are the window's already.
  void (*cut)(const CaptureWindow& window, RankCapture& rank);

  /// Adds `first_step` to the numbers of its steps: the capture follows another one.
  void (*renumber)(uint32_t first_step, RankCapture& rank);
};

/// All that this version knows, as they follow each other in a file.
std::span<const CaptureSection> capture_sections();

}  // namespace ferry

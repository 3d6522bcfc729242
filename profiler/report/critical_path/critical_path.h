#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/report/timeline/report_input.h"

// What the length of a step was made of, on whichever rank: from its end backwards, always that which everything after it had
// to wait for. Where the coordinator waits for a reply the path goes through the message to the worker that sent it, over what
// that did before, and through the rows that it waited for back to the coordinator. What is not on the path could have taken
// longer, and the step would have been as long; what is on it, and took less, would have made it shorter, until something
// else is.

namespace ferry {

enum class PathKind : uint8_t {
  kCompute,     // an operator, of a thread or a device
  kHost,        // other work of the thread, and what is not recorded
  kMessage,     // a message under way
  kWait,        // a wait that no message explains: for a lock, a device, or to take in what was there
  kNotRunning,  // the rank did not run at all
};
const char* path_kind_name(PathKind kind);  // "compute", "host", "message", "wait", "not running"

/// A part of a step's path. Times are the timeline's.
struct PathPiece {
  int32_t step = 0;  // index into timeline.steps
  int32_t rank = 0;  // of a message the one that waits for it; of a rank that did not run that one
  PathKind kind = PathKind::kHost;
  int32_t slice = -1;    // index into timeline.slices: what it was doing; -1: nothing is recorded
  int32_t message = -1;  // index into timeline.messages, of kMessage
  int64_t begin_ns = 0, end_ns = 0;
};

/// By step, then begin. The pieces of a step lie end to end and cover it exactly, so their lengths add up to the step; none is
/// empty. Where clocks are off by so much that a message seems to come before it was sent, its flight has no length.
std::vector<PathPiece> find_critical_path(const ReportInput& input);

/// [timeline.steps.size()] the rank whose step each is: 0, but of captures that were joined the coordinator of its own one.
std::vector<int32_t> find_coordinators(const Timeline& timeline);

/// What a piece was, in a few words: an operator's or a wait's name, "rows from rank 0", "reply to rank 0", "not recorded".
std::string path_piece_name(const Timeline& timeline, const PathPiece& piece);
/// The other end of a message, or the rank that was waited for; -1 if there is none.
int32_t path_piece_peer(const Timeline& timeline, const PathPiece& piece);

}  // namespace ferry

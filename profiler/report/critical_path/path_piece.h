#pragma once

#include <cstdint>
#include <string>

#include "profiler/report/timeline/timeline.h"

namespace ferry {

enum class PathKind : uint8_t {
  kCompute,     // an operator, of a thread or a device
  kHost,        // other work of the thread, and what is not recorded
  kMessage,     // a message under way
  kWait,        // a wait that no message explains: for a lock, a device, or to take in what was there
  kNotRunning,  // the rank did not run at all
};
const char* path_kind_name(PathKind kind);  // "compute", "host", "message", "wait", "not running"

/// A part of a step's critical path. Times are the timeline's.
struct PathPiece {
  int32_t step = 0;  // index into timeline.steps
  int32_t rank = 0;  // of a message the one that waits for it; of a rank that did not run that one
  PathKind kind = PathKind::kHost;
  int32_t slice = -1;    // index into timeline.slices: what it was doing; -1: nothing is recorded
  int32_t message = -1;  // index into timeline.messages, of kMessage
  int64_t begin_ns = 0, end_ns = 0;
};

/// What a piece was, in a few words: an operator's or a wait's name, "rows from rank 0", "reply to rank 0", "not recorded".
std::string path_piece_name(const Timeline& timeline, const PathPiece& piece);
/// The other end of a message, or the rank that was waited for; -1 if there is none.
int32_t path_piece_peer(const Timeline& timeline, const PathPiece& piece);

}  // namespace ferry

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "moe/wire.h"

// How the coordinator rules the recorders of other ranks: a command where an expert worker expects rows, and one reply each.
// Commands are sent between steps only, so that all ranks change at the same step boundary. Both ends check what they receive.

namespace ferry {

constexpr int kTraceReplyTag = 3;
constexpr int64_t kTracePieceBytes = int64_t{1} << 20;      // of a capture, in one reply
constexpr int64_t kMaxRankCaptureBytes = int64_t{1} << 34;  // that a rank may hand over
constexpr int64_t kMaxTraceMemoryBytes = int64_t{4} << 30;  // of spans that a rank may be told to keep

struct TraceCommand {
  enum class Op : int32_t {
    kStart = 1,     // level and max_bytes hold
    kStop = 2,      // the capture is kept for kFetch; num_bytes of the reply is its size
    kSnapshot = 3,  // the same with what the rings hold
    kFetch = 4,     // bytes from `offset`, up to kTracePieceBytes
    kReadClock = 5,
    kDiscard = 6,    // the capture that runs, and what is kept for kFetch
    kTakeSteps = 7,  // what the rings hold of the step `offset` and of those behind it, in one reply
  };
  WireHeader header{.kind = WireKind::kTrace};
  Op op = Op::kReadClock;
  int32_t level = 0;
  int64_t number = 0;  // of the command; its reply has the same
  int64_t max_bytes = 0;
  int64_t offset = 0;
};

/// Whether replies to it are followed by bytes.
constexpr bool brings_bytes(TraceCommand::Op op) {
  return op == TraceCommand::Op::kFetch || op == TraceCommand::Op::kTakeSteps;
}

/// Followed by num_bytes bytes if it answers kFetch or kTakeSteps.
struct TraceReply {
  WireHeader header{.kind = WireKind::kTraceReply};
  int64_t number = 0;
  int64_t clock_ns = 0;  // the rank's CLOCK_MONOTONIC as it answered
  int64_t num_bytes = 0;
  char boot_id[64] = {};
  char complaint[128] = {};  // why it failed; empty if it did not
};

/// Throws Error{kInternal} for anything but a whole command with values in range.
TraceCommand parse_trace_command(std::span<const std::byte> message);
/// What `worker` answered to `command`. The Error names the rank.
TraceReply parse_trace_reply(std::span<const std::byte> message, const TraceCommand& command, Rank worker);

}  // namespace ferry

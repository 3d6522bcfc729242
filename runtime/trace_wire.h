#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "moe/wire.h"

// How the coordinator rules the recorders of other ranks: a command where an expert worker expects rows, and one reply each.
// Commands are sent between steps only, so that all ranks change at the same step boundary.

namespace ferry {

constexpr int kTraceReplyTag = 3;
constexpr int64_t kTracePieceBytes = int64_t{1} << 20;  // of a capture, in one reply

struct TraceCommand {
  enum class Op : int32_t {
    kStart = 1,     // level and max_bytes hold
    kStop = 2,      // the capture is kept for kFetch; num_bytes of the reply is its size
    kSnapshot = 3,  // the same with what the rings hold
    kFetch = 4,     // bytes from `offset`, up to kTracePieceBytes
    kReadClock = 5,
  };
  WireHeader header{.kind = WireKind::kTrace};
  Op op = Op::kReadClock;
  int32_t level = 0;
  int64_t max_bytes = 0;
  int64_t offset = 0;
};

/// Followed by num_bytes bytes if it answers kFetch.
struct TraceReply {
  WireHeader header{.kind = WireKind::kTraceReply};
  int64_t clock_ns = 0;  // the rank's CLOCK_MONOTONIC as it answered
  int64_t num_bytes = 0;
  char boot_id[64] = {};
  char complaint[128] = {};  // why it failed; empty if it did not
};

template <class Message>
Message read_trace_message(std::span<const std::byte> bytes) {
  Message message;
  std::memcpy(&message, bytes.data(), sizeof message);
  return message;
}

}  // namespace ferry

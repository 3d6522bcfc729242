#include "runtime/trace/trace_wire.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "profiler/zones.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

void require(const char* what, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return;
  throw Error(ErrorCode::kInternal, std::string(what) + " " + std::to_string(value) + "; allowed: " + std::to_string(least) +
                                        " to " + std::to_string(most));
}

/// The fixed part of a message of `kind`.
template <class Message>
Message read_fixed_part(std::span<const std::byte> bytes, WireKind kind) {
  const WireHeader header = read_header_of_any_epoch(bytes);
  require("kind of a trace message", static_cast<int64_t>(header.kind), static_cast<int64_t>(kind), static_cast<int64_t>(kind));
  if (bytes.size() < sizeof(Message))
    throw Error(ErrorCode::kInternal, "a trace message has " + std::to_string(bytes.size()) + " bytes; allowed: at least " +
                                          std::to_string(sizeof(Message)));
  Message message;
  std::memcpy(&message, bytes.data(), sizeof message);
  return message;
}

void require_text(const char* what, std::span<const char> text) {
  if (std::find(text.begin(), text.end(), '\0') == text.end())
    throw Error(ErrorCode::kInternal, std::string(what) + " of a trace reply does not end");
}

}  // namespace

TraceCommand parse_trace_command(std::span<const std::byte> message) {
  const auto command = read_fixed_part<TraceCommand>(message, WireKind::kTrace);
  require("bytes of a trace command", static_cast<int64_t>(message.size()), sizeof command, sizeof command);
  require("trace command", static_cast<int64_t>(command.op), static_cast<int64_t>(TraceCommand::Op::kStart),
          static_cast<int64_t>(TraceCommand::Op::kTakeSteps));
  require("trace level", command.level, static_cast<int64_t>(TraceLevel::kOff), static_cast<int64_t>(TraceLevel::kThreads));
  require("memory for a trace", command.max_bytes, 0, kMaxTraceMemoryBytes);
  require("offset in a capture", command.offset, 0, kMaxRankCaptureBytes);
  return command;
}

TraceReply parse_trace_reply(std::span<const std::byte> message, const TraceCommand& command, Rank worker) try {
  const auto reply = read_fixed_part<TraceReply>(message, WireKind::kTraceReply);
  require("epoch of a trace reply", reply.header.map_epoch, command.header.map_epoch, command.header.map_epoch);
  require("number of a trace reply", reply.number, command.number, command.number);
  const bool carries_bytes = brings_bytes(command.op);
  require("bytes of a capture", reply.num_bytes, 0, carries_bytes ? kTracePieceBytes : kMaxRankCaptureBytes);
  const int64_t expected = static_cast<int64_t>(sizeof reply) + (carries_bytes ? reply.num_bytes : 0);
  require("bytes of a trace reply", static_cast<int64_t>(message.size()), expected, expected);
  require_text("boot_id", reply.boot_id);
  require_text("complaint", reply.complaint);
  return reply;
} catch (const Error& error) {
  throw Error(error.code(), "rank " + std::to_string(worker.value) + ": " + error.what());
}

}  // namespace ferry

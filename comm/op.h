#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "runtime/base/types.h"

// Sends and receives under way, as links and groups know them.

namespace ferry {

using Deadline = std::chrono::steady_clock::time_point;

/// What a receive takes: messages of up to its size, or of its size alone. Who knows the size says so: over gloo the whole of a
/// message of more than 64 KiB then arrives while nobody waits for it; one of up to its size does so if the one before was as
/// long.
enum class Fit { kUpTo, kExact };

/// What an operation moves and with whom.
struct OpInfo {
  enum class Kind { kSend, kRecv };
  Kind kind = Kind::kSend;
  Rank peer;
  int tag = 0;
  std::size_t bytes = 0;  // of the caller's memory
  Fit fit = Fit::kExact;  // of a receive
};

/// A posted receive or send. When an unfinished one may be destroyed is what its Link or Group says; nothing is written to its
/// memory from then on. It must not outlive its link or group.
class PendingOp {
 public:
  virtual ~PendingOp() = default;
  PendingOp(const PendingOp&) = delete;
  PendingOp& operator=(const PendingOp&) = delete;

  const OpInfo info;

 protected:
  explicit PendingOp(const OpInfo& op_info) : info(op_info) {}
};

}  // namespace ferry

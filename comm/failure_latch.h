#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>
#include <string>

#include "comm/group.h"
#include "runtime/base/error.h"
#include "runtime/base/types.h"

// What every transport behind comm/group.h shares: the check of an operation, its description for error messages, and the latch
// that turns the first failure of a group into the error of every wait.

namespace ferry {

/// Checks what every transport asks of isend and irecv: a peer that exists and is not `self`, and a tag below kNumInnerTags.
void check_op(const OpInfo& info, Rank self, int size);

/// "recv of at most 33 bytes from rank 2 (tag 5)"
std::string describe(const OpInfo& info);

/// Keeps the first failure of a group. Any thread may call anything.
class FailureLatch {
 public:
  /// Records the failure unless there is one already; says whether it was the first. `rank` -1 names nobody.
  bool set(ErrorCode code, Rank rank, const std::string& reason);
  /// The failures that all transports know.
  bool set_deadline_exceeded(const OpInfo& info);
  bool set_aborted();

  bool is_set() const { return is_set_.load(std::memory_order_acquire); }
  /// Empty while nothing failed.
  std::string message() const;
  /// Throws the first failure as Error, if there is one.
  void throw_if_set() const;
  /// Fails and throws unless a message of `bytes` fits the receive.
  void require_fit(const OpInfo& info, std::size_t bytes);

 private:
  std::atomic<bool> is_set_{false};
  mutable std::mutex mutex_;  // guards the two below
  ErrorCode code_ = ErrorCode::kInternal;
  std::string message_;
};

}  // namespace ferry

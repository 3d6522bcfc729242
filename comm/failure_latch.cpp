#include "comm/failure_latch.h"

#include "runtime/base/check.h"

namespace ferry {

void check_op(const OpInfo& info, Rank self, int size) {
  FERRY_CHECK(info.peer.value >= 0 && info.peer.value < size) << " " << describe(info) << " in a group of " << size;
  FERRY_CHECK(info.peer != self) << " " << describe(info) << " is with itself";
  FERRY_CHECK(info.tag >= 0 && info.tag < Group::kNumInnerTags) << " " << describe(info);
}

std::string describe(const OpInfo& info) {
  const bool is_send = info.kind == OpInfo::Kind::kSend;
  const char* what = is_send ? "send of " : info.fit == Fit::kExact ? "recv of " : "recv of at most ";
  return what + std::to_string(info.bytes) + " bytes " + (is_send ? "to" : "from") + " rank " +
         std::to_string(info.peer.value) + " (tag " + std::to_string(info.tag) + ")";
}

bool FailureLatch::set(ErrorCode code, Rank rank, const std::string& reason) {
  const std::scoped_lock lock(mutex_);
  if (is_set()) return false;
  code_ = code;
  message_ = rank.value < 0 ? reason : "rank " + std::to_string(rank.value) + ": " + reason;
  is_set_.store(true, std::memory_order_release);
  return true;
}

bool FailureLatch::set_deadline_exceeded(const OpInfo& info) {
  return set(ErrorCode::kDeadlineExceeded, info.peer, "silent at the deadline of the " + describe(info));
}

bool FailureLatch::set_aborted() { return set(ErrorCode::kCancelled, Rank{}, "the group was aborted"); }

std::string FailureLatch::message() const {
  const std::scoped_lock lock(mutex_);
  return message_;
}

void FailureLatch::throw_if_set() const {
  if (!is_set()) return;
  const std::scoped_lock lock(mutex_);
  throw Error(code_, message_);
}

void FailureLatch::require_fit(const OpInfo& info, std::size_t bytes) {
  if (info.fit == Fit::kExact ? bytes == info.bytes : bytes <= info.bytes) return;
  set(ErrorCode::kInternal, info.peer, "sent " + std::to_string(bytes) + " bytes for the " + describe(info));
  throw_if_set();
}

}  // namespace ferry

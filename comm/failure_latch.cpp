#include "comm/failure_latch.h"

#include "comm/group.h"
#include "runtime/base/check.h"

namespace ferry {

void check_op(const OpInfo& info, Rank self, int size) {
  FERRY_CHECK(info.peer.value >= 0 && info.peer.value < size) << " " << describe(info) << " in a group of " << size;
  FERRY_CHECK(info.peer != self) << " " << describe(info) << " is with itself";
  FERRY_CHECK(info.tag >= 0 && info.tag < Group::kNumInnerTags) << " " << describe(info);
}

std::string describe(const OpInfo& info) {
  const bool is_send = info.kind == OpInfo::Kind::kSend;
  return std::string(is_send ? "send of " : "recv of at most ") + std::to_string(info.bytes) + " bytes " +
         (is_send ? "to" : "from") + " rank " + std::to_string(info.peer.value) + " (tag " + std::to_string(info.tag) + ")";
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

}  // namespace ferry

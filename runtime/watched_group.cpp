#include "runtime/watched_group.h"

namespace ferry {

using Activity = Progress::Activity;

std::unique_ptr<PendingOp> WatchedGroup::isend(std::span<const std::byte> data, Rank to, int tag) {
  const Progress::Scope posting(progress_, Activity::kPosting, {OpInfo::Kind::kSend, to, tag, data.size()});
  return group_.isend(data, to, tag);
}

std::unique_ptr<PendingOp> WatchedGroup::irecv(std::span<std::byte> data, Rank from, int tag, Fit fit) {
  const Progress::Scope posting(progress_, Activity::kPosting, {OpInfo::Kind::kRecv, from, tag, data.size(), fit});
  return group_.irecv(data, from, tag, fit);
}

std::size_t WatchedGroup::wait(PendingOp& op, Deadline deadline) {
  const Progress::Scope awaiting(progress_, Activity::kAwaiting, op.info);
  return group_.wait(op, deadline);
}

}  // namespace ferry

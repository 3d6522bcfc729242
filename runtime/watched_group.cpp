#include "runtime/watched_group.h"

#include <utility>

namespace ferry {
namespace {

struct WatchedOp : PendingOp {
  WatchedOp(std::unique_ptr<PendingOp> op, const AwaitedMessage& awaited) : inner(std::move(op)), message(awaited) {}

  const std::unique_ptr<PendingOp> inner;
  const AwaitedMessage message;
};

}  // namespace

std::unique_ptr<PendingOp> WatchedGroup::isend(std::span<const std::byte> data, Rank to, int tag) {
  const AwaitedMessage message{.peer = to, .tag = tag, .bytes = data.size()};
  const Progress::Scope posting(progress_, Progress::Activity::kPosting, message);
  return std::make_unique<WatchedOp>(group_.isend(data, to, tag), message);
}

std::unique_ptr<PendingOp> WatchedGroup::irecv(std::span<std::byte> data, Rank from, int tag, Fit fit) {
  const AwaitedMessage message{.peer = from, .tag = tag, .bytes = data.size()};
  const Progress::Scope posting(progress_, Progress::Activity::kPosting, message);
  return std::make_unique<WatchedOp>(group_.irecv(data, from, tag, fit), message);
}

std::size_t WatchedGroup::wait(PendingOp& op, Deadline deadline) {
  const auto& watched = dynamic_cast<const WatchedOp&>(op);
  const Progress::Scope awaiting(progress_, Progress::Activity::kAwaiting, watched.message);
  return group_.wait(*watched.inner, deadline);
}

}  // namespace ferry

#include "runtime/watched_links.h"

namespace ferry {
namespace {

using Activity = Progress::Activity;

class WatchedLink final : public Link {
 public:
  WatchedLink(Link& link, Progress& progress) : link_(link), progress_(progress) {}

  Rank peer() const override { return link_.peer(); }
  std::unique_ptr<PendingOp> isend(std::span<const std::byte> data, int tag) override {
    const Progress::Scope posting(progress_, Activity::kPosting, {OpInfo::Kind::kSend, peer(), tag, data.size()});
    return link_.isend(data, tag);
  }
  std::unique_ptr<PendingOp> irecv(std::span<std::byte> data, int tag, Fit fit) override {
    const Progress::Scope posting(progress_, Activity::kPosting, {OpInfo::Kind::kRecv, peer(), tag, data.size(), fit});
    return link_.irecv(data, tag, fit);
  }
  std::size_t wait(PendingOp& op, Deadline deadline) override {
    const Progress::Scope awaiting(progress_, Activity::kAwaiting, op.info);
    return link_.wait(op, deadline);
  }
  void fail(const std::string& reason) override { link_.fail(reason); }
  std::optional<Error> failure() const override { return link_.failure(); }

 private:
  Link& link_;
  Progress& progress_;
};

}  // namespace

std::unique_ptr<Link> WatchedLinks::watch(Link& link) { return std::make_unique<WatchedLink>(link, progress_); }

std::size_t WatchedLinks::wait_any(std::span<PendingOp* const> ops, Deadline deadline) {
  const Progress::Scope awaiting(progress_, Activity::kAwaiting, ops.front()->info);
  return hub_.wait_any(ops, deadline);
}

}  // namespace ferry

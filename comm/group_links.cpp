#include "comm/group_links.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "runtime/base/check.h"

namespace ferry {
namespace {

struct GroupLinkOp : PendingOp {
  explicit GroupLinkOp(std::unique_ptr<PendingOp> group_op) : PendingOp(group_op->info), op(std::move(group_op)) {}

  std::unique_ptr<PendingOp> op;
  std::optional<std::size_t> num_moved;  // once it is done
  std::optional<Error> error;            // or how it failed
};

class GroupLink final : public Link {
 public:
  GroupLink(Group& group, Rank peer) : group_(group), peer_(peer) {}

  Rank peer() const override { return peer_; }
  std::unique_ptr<PendingOp> isend(std::span<const std::byte> data, int tag) override {
    return std::make_unique<GroupLinkOp>(group_.isend(data, peer_, tag));
  }
  std::unique_ptr<PendingOp> irecv(std::span<std::byte> data, int tag, Fit fit) override {
    return std::make_unique<GroupLinkOp>(group_.irecv(data, peer_, tag, fit));
  }
  std::size_t wait(PendingOp& pending, Deadline deadline) override {
    auto& op = dynamic_cast<GroupLinkOp&>(pending);
    if (op.error) throw Error(*op.error);
    if (!op.num_moved) op.num_moved = group_.wait(*op.op, deadline);
    return *op.num_moved;
  }
  void fail(const std::string& reason) override {
    group_.fail(peer_, reason);
    group_.abort();
  }
  std::optional<Error> failure() const override {
    const std::string error = group_.async_error();
    if (error.empty()) return {};
    return Error(ErrorCode::kUnavailable, error);
  }

 private:
  Group& group_;
  const Rank peer_;
};

}  // namespace

GroupLinks::GroupLinks(Group& group) : group_(group) {
  for (int32_t r = 0; r < group.size(); ++r)
    links_.push_back(Rank{r} == group.rank() ? nullptr : std::make_unique<GroupLink>(group, Rank{r}));
}

GroupLinks::~GroupLinks() = default;

Link& GroupLinks::link(Rank peer) {
  FERRY_CHECK(peer != group_.rank() && peer.value >= 0 && peer.value < group_.size()) << " rank " << peer.value;
  return *links_[static_cast<std::size_t>(peer.value)];
}

std::size_t GroupLinks::wait_any(std::span<PendingOp* const> ops, Deadline deadline) {
  FERRY_CHECK(!ops.empty());
  const auto has_ended = [](PendingOp* op) {
    const auto& link_op = dynamic_cast<const GroupLinkOp&>(*op);
    return link_op.num_moved || link_op.error;
  };
  const auto ended = std::ranges::find_if(ops, has_ended);
  if (ended != ops.end()) return static_cast<std::size_t>(ended - ops.begin());
  auto& first = dynamic_cast<GroupLinkOp&>(*ops.front());
  try {
    first.num_moved = group_.wait(*first.op, deadline);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kDeadlineExceeded) throw;
    first.error = error;
  }
  return 0;
}

}  // namespace ferry

#pragma once

#include <memory>
#include <vector>

#include "comm/group.h"
#include "comm/link.h"

namespace ferry {

/// The peers of a group as links, for jobs whose rows travel over a group. They fail together, as the group does: a deadline
/// ends them all, and so does a lost rank. Errors are the group's. Unfinished operations may be dropped after a failure only,
/// and wait_any() waits for the first of its operations.
class GroupLinks final : public LinkHub {
 public:
  /// `group` outlives this and every link.
  explicit GroupLinks(Group& group);
  ~GroupLinks() override;

  /// Of a rank that is not this one.
  Link& link(Rank peer);

  bool fails_together() const override { return true; }
  Deadline now() const override { return group_.now(); }
  std::size_t wait_any(std::span<PendingOp* const> ops, Deadline deadline) override;

 private:
  Group& group_;
  std::vector<std::unique_ptr<Link>> links_;  // [size], this rank's null
};

}  // namespace ferry

#pragma once

#include <memory>
#include <string>

#include "comm/group.h"
#include "runtime/progress.h"

namespace ferry {

/// A group whose user leaves marks in a Progress: which message it posts or waits for. Otherwise the group that it stands for.
class WatchedGroup final : public Group {
 public:
  /// Both outlive this.
  WatchedGroup(Group& group, Progress& progress) : group_(group), progress_(progress) {}

  const char* name() const override { return group_.name(); }
  Rank rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  std::unique_ptr<PendingOp> isend(std::span<const std::byte> data, Rank to, int tag) override;
  std::unique_ptr<PendingOp> irecv(std::span<std::byte> data, Rank from, int tag, Fit fit) override;
  std::size_t wait(PendingOp& op, Deadline deadline) override;
  Deadline now() const override { return group_.now(); }
  void fail(Rank rank, const std::string& reason) override { group_.fail(rank, reason); }
  std::string async_error() const override { return group_.async_error(); }
  void abort() override { group_.abort(); }

 private:
  Group& group_;
  Progress& progress_;
};

}  // namespace ferry

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/link.h"
#include "runtime/progress.h"

namespace ferry {

/// Links whose user leaves marks in a Progress: which message it posts or waits for. Otherwise the links that they stand for.
class WatchedLinks final : public LinkHub {
 public:
  /// Both outlive this.
  WatchedLinks(LinkHub& hub, Progress& progress) : hub_(hub), progress_(progress) {}

  /// Stands for `link`, which is one of the hub's and outlives the result.
  std::unique_ptr<Link> watch(Link& link);

  bool fails_together() const override { return hub_.fails_together(); }
  Deadline now() const override { return hub_.now(); }
  std::size_t wait_any(std::span<PendingOp* const> ops, Deadline deadline) override;

 private:
  LinkHub& hub_;
  Progress& progress_;
};

}  // namespace ferry

#pragma once

#include "comm/faulty/faulty_network.h"

namespace ferry {

/// A rank's handle on a FaultyNetwork. Its time is virtual, and waiting is the only thing that takes any.
class FaultyGroup final : public Group {
 public:
  FaultyGroup(FaultyNetwork& network, Rank rank, int size);
  ~FaultyGroup() override;

  const char* name() const override { return "faulty"; }
  Rank rank() const override { return rank_; }
  int size() const override { return size_; }
  Deadline now() const override { return network_.time_.now(); }

  std::unique_ptr<PendingOp> isend(std::span<const std::byte> data, Rank to, int tag) override;
  std::unique_ptr<PendingOp> irecv(std::span<std::byte> data, Rank from, int tag, Fit fit) override;
  std::size_t wait(PendingOp& pending, Deadline deadline) override;

  void fail(Rank rank, const std::string& reason) override { failure_.set(ErrorCode::kUnavailable, rank, reason); }
  std::string async_error() const override { return failure_.message(); }
  void abort() override { failure_.set_aborted(); }

 private:
  struct Op;

  bool is_done(const Op& op);
  std::size_t receive(Op& op);

  FaultyNetwork& network_;
  const Rank rank_;
  const int size_;
  FailureLatch failure_;
};

}  // namespace ferry

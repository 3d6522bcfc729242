#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/link.h"

namespace ferry::test {

/// A link to nobody, which keeps what is sent.
class RecordingLink final : public Link {
 public:
  struct Message {
    int tag;
    std::vector<std::byte> bytes;
  };

  explicit RecordingLink(int32_t peer) : peer_{peer} {}

  Rank peer() const override { return peer_; }
  std::unique_ptr<PendingOp> isend(std::span<const std::byte> data, int tag) override {
    if (failure_) throw Error(*failure_);
    sent.push_back({tag, {data.begin(), data.end()}});
    return std::make_unique<Done>(OpInfo{.kind = OpInfo::Kind::kSend, .peer = peer_, .tag = tag, .bytes = data.size()});
  }
  std::unique_ptr<PendingOp> irecv(std::span<std::byte> data, int tag, Fit fit) override {
    return std::make_unique<Done>(
        OpInfo{.kind = OpInfo::Kind::kRecv, .peer = peer_, .tag = tag, .bytes = data.size(), .fit = fit});
  }
  std::size_t wait(PendingOp& op, Deadline) override {
    if (op.info.kind == OpInfo::Kind::kRecv) throw Error(ErrorCode::kDeadlineExceeded, "nobody sends anything");
    return op.info.bytes;
  }
  void fail(const std::string& reason) override {
    if (!failure_) failure_ = Error(ErrorCode::kUnavailable, reason);
  }
  std::optional<Error> failure() const override { return failure_; }

  std::vector<Message> sent;

 private:
  struct Done final : PendingOp {
    explicit Done(const OpInfo& op_info) : PendingOp(op_info) {}
  };

  const Rank peer_;
  std::optional<Error> failure_;
};

}  // namespace ferry::test

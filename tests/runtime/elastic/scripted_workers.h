#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/link.h"
#include "moe/assignment.h"
#include "runtime/base/check.h"

// Workers that say what a test has them say, over links whose time stands still.

namespace ferry::test {

/// Keeps what is sent; what is received is what `say` was given.
class ScriptedLink final : public Link {
 public:
  explicit ScriptedLink(Rank peer) : peer_(peer) {}

  void say(const std::vector<std::byte>& message) { said_.push_back(message); }
  bool has_said() const { return !said_.empty(); }
  /// The last assignment that it was told; nothing if there was none.
  std::optional<Assignment> told(int64_t num_layers, int64_t num_experts) const {
    for (auto message = sent_.rbegin(); message != sent_.rend(); ++message) {
      if (read_header_of_any_epoch(*message).kind == WireKind::kAssign)
        return decode_assignment(*message, num_layers, num_experts);
    }
    return std::nullopt;
  }

  Rank peer() const override { return peer_; }
  std::unique_ptr<PendingOp> isend(std::span<const std::byte> data, int tag) override {
    if (failure_) throw Error(*failure_);
    sent_.emplace_back(data.begin(), data.end());
    return std::make_unique<Op>(OpInfo{.kind = OpInfo::Kind::kSend, .peer = peer_, .tag = tag, .bytes = data.size()}, *this);
  }
  std::unique_ptr<PendingOp> irecv(std::span<std::byte> data, int tag, Fit fit) override {
    auto op = std::make_unique<Op>(
        OpInfo{.kind = OpInfo::Kind::kRecv, .peer = peer_, .tag = tag, .bytes = data.size(), .fit = fit}, *this);
    op->memory = data;
    return op;
  }
  std::size_t wait(PendingOp& op, Deadline) override {
    if (op.info.kind == OpInfo::Kind::kSend) return op.info.bytes;
    if (said_.empty() && failure_) throw Error(*failure_);
    if (said_.empty()) throw Error(ErrorCode::kDeadlineExceeded, "it says nothing");
    const std::vector<std::byte> message = std::move(said_.front());
    said_.pop_front();
    FERRY_CHECK_LE(message.size(), static_cast<Op&>(op).memory.size());
    std::ranges::copy(message, static_cast<Op&>(op).memory.begin());
    return message.size();
  }
  void fail(const std::string& reason) override {
    if (!failure_) failure_ = Error(ErrorCode::kUnavailable, reason);
  }
  std::optional<Error> failure() const override { return failure_; }

  struct Op final : PendingOp {
    Op(const OpInfo& op_info, ScriptedLink& of) : PendingOp(op_info), link(of) {}
    ScriptedLink& link;
    std::span<std::byte> memory;
  };

 private:
  const Rank peer_;
  std::optional<Error> failure_;
  std::deque<std::vector<std::byte>> said_;
  std::vector<std::vector<std::byte>> sent_;
};

class ScriptedHub final : public LinkHub {
 public:
  Deadline time{std::chrono::hours(1)};
  bool is_group = false;

  bool fails_together() const override { return is_group; }
  Deadline now() const override { return time; }
  std::size_t wait_any(std::span<PendingOp* const> ops, Deadline) override {
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const ScriptedLink& link = static_cast<ScriptedLink::Op&>(*ops[i]).link;
      if (link.has_said() || link.failure()) return i;
    }
    throw Error(ErrorCode::kDeadlineExceeded, "nobody says anything");
  }
};

}  // namespace ferry::test

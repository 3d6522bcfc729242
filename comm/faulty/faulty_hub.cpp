#include <algorithm>
#include <utility>

#include "comm/faulty/faulty_connection.h"
#include "comm/faulty/faulty_links.h"
#include "runtime/base/check.h"

// What one rank has of simulated links: its ends, what it posts on them, and what it waits with.

namespace ferry {

/// One end, for who has adopted it.
class FaultyLink final : public Link {
 public:
  FaultyLink(FaultyLinks& links, std::shared_ptr<FaultyConnection> connection, int side)
      : links_(links), connection_(std::move(connection)), side_(side) {}
  ~FaultyLink() override {
    if (links_.network_.is_killed(end().rank)) return;
    end().end_was_told = true;
    if (!end().failure.set(ErrorCode::kCancelled, Rank{}, "the link was closed here")) return;
    links_.post_end(connection_, side_, ShipmentKind::kGoodbye, {});
  }

  Rank peer() const override { return end().peer; }

  std::unique_ptr<PendingOp> isend(std::span<const std::byte> data, int tag) override {
    links_.require_alive(end().rank);
    FERRY_CHECK(tag >= 0 && tag < kNumTags) << " tag " << tag;
    end().failure.throw_if_set();
    auto op = std::make_unique<FaultyLinkOp>(OpInfo{OpInfo::Kind::kSend, end().peer, tag, data.size()}, connection_, side_);
    op->sent = data;
    op->copy.assign(data.begin(), data.end());
    op->done = links_.send(connection_, side_, tag, data);
    links_.require_alive(end().rank);  // this very message may have been the last
    return op;
  }

  std::unique_ptr<PendingOp> irecv(std::span<std::byte> data, int tag, Fit fit) override {
    links_.require_alive(end().rank);
    FERRY_CHECK(tag >= 0 && tag < kNumTags) << " tag " << tag;
    auto op =
        std::make_unique<FaultyLinkOp>(OpInfo{OpInfo::Kind::kRecv, end().peer, tag, data.size(), fit}, connection_, side_);
    op->memory = data;
    auto& waiting = end().unexpected[tag];
    auto& posted = end().posted[tag];
    if (waiting.empty() || !posted.empty()) {
      end().failure.throw_if_set();
      posted.push_back(op.get());
      return op;
    }
    const std::vector<std::byte> message = std::move(waiting.front());
    waiting.pop_front();
    if (!op->deliver(message)) links_.refuse(connection_, side_, *op, message.size());
    return op;
  }

  std::size_t wait(PendingOp& pending, Deadline deadline) override {
    auto& op = dynamic_cast<FaultyLinkOp&>(pending);
    links_.await(end().rank, deadline, [&op] { return op.has_ended(); });
    if (!op.has_ended())
      throw Error(ErrorCode::kDeadlineExceeded,
                  "rank " + std::to_string(end().peer.value) + ": silent at the deadline of the " + describe(op.info));
    if (!op.is_done()) end().failure.throw_if_set();
    op.check_memory();
    return op.info.kind == OpInfo::Kind::kSend ? op.copy.size() : op.num_moved;
  }

  void fail(const std::string& reason) override {
    links_.require_alive(end().rank);
    links_.give_up(connection_, side_, reason);
  }

  std::optional<Error> failure() const override {
    links_.require_alive(end().rank);
    try {
      end().failure.throw_if_set();
    } catch (const Error& error) {
      return error;
    }
    return {};
  }

 private:
  FaultyConnection::End& end() const { return connection_->ends[static_cast<std::size_t>(side_)]; }

  FaultyLinks& links_;
  const std::shared_ptr<FaultyConnection> connection_;
  const int side_;
};

FaultyHub::FaultyHub(FaultyLinks& links, Rank rank, OnLinkEnd on_end)
    : links_(links), rank_(rank), on_end_(std::move(on_end)), self_(std::make_shared<FaultyHub*>(this)) {
  links_.network_.enter(rank, this);
}

FaultyHub::~FaultyHub() {
  *self_ = nullptr;
  links_.network_.enter(rank_, nullptr);
}

std::unique_ptr<Link> FaultyHub::adopt(const std::shared_ptr<FaultyConnection>& connection) {
  const int side = connection->ends[0].rank == rank_ ? 0 : 1;
  FaultyConnection::End& end = connection->ends[static_cast<std::size_t>(side)];
  FERRY_CHECK(end.rank == rank_ && !end.hub) << " rank " << rank_.value;
  end.hub = self_;
  if (end.failure.is_set())
    links_.network_.time_.at(now(), [&links = links_, connection, side] { links.tell(*connection, side); });
  return std::make_unique<FaultyLink>(links_, connection, side);
}

Deadline FaultyHub::now() const {
  links_.require_alive(rank_);
  return links_.network_.time_.now();
}

std::size_t FaultyHub::wait_any(std::span<PendingOp* const> ops, Deadline deadline) {
  FERRY_CHECK(!ops.empty());
  const auto has_ended = [](PendingOp* op) { return dynamic_cast<const FaultyLinkOp&>(*op).has_ended(); };
  links_.await(rank_, deadline, [&] { return std::ranges::any_of(ops, has_ended); });
  const auto ended = std::ranges::find_if(ops, has_ended);
  if (ended != ops.end()) return static_cast<std::size_t>(ended - ops.begin());
  throw Error(ErrorCode::kDeadlineExceeded, "none of " + std::to_string(ops.size()) + " peers answered; the first is rank " +
                                                std::to_string(ops.front()->info.peer.value));
}

FaultyLinkOp::FaultyLinkOp(const OpInfo& op_info, std::shared_ptr<FaultyConnection> op_connection, int op_side)
    : PendingOp(op_info), connection(std::move(op_connection)), side(op_side) {}

FaultyLinkOp::~FaultyLinkOp() {
  if (is_done()) return;
  if (info.kind == OpInfo::Kind::kSend) {
    check_memory();
    return;
  }
  std::erase(connection->ends[static_cast<std::size_t>(side)].posted[info.tag], this);
  for (FaultyShipment& shipment : connection->ends[static_cast<std::size_t>(1 - side)].under_way) {
    if (shipment.op != this) continue;
    shipment.op = nullptr;
    shipment.place = FaultyShipment::Place::kSink;
  }
}

bool FaultyLinkOp::takes(std::size_t num_bytes) const {
  return info.fit == Fit::kExact ? num_bytes == info.bytes : num_bytes <= info.bytes;
}

bool FaultyLinkOp::deliver(std::span<const std::byte> message) {
  if (!takes(message.size())) return false;
  std::ranges::copy(message, memory.begin());
  num_moved = message.size();
  *done = true;
  return true;
}

bool FaultyLinkOp::has_ended() const { return is_done() || connection->ends[static_cast<std::size_t>(side)].failure.is_set(); }

void FaultyLinkOp::check_memory() const {
  FERRY_CHECK(std::ranges::equal(sent, copy)) << describe(info) << " changed under way";
}

}  // namespace ferry

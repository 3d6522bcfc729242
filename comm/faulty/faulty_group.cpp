#include "comm/faulty/faulty_group.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace ferry {

namespace {

constexpr std::chrono::hours kLongestWait{1};  // loading may take half an hour

}  // namespace

/// Holds the contract of comm/group.h against its users: a send's memory does not change under way, and what is unfinished is
/// dropped only after a failure.
struct FaultyGroup::Op : PendingOp {
  Op(const FailureLatch& group_failure, const OpInfo& op_info) : PendingOp(op_info), failure(group_failure) {}
  ~Op() override { FERRY_CHECK(is_finished || failure.is_set()) << describe(info) << " is dropped while it is under way"; }

  const FailureLatch& failure;
  bool is_finished = false;
  // Of a send.
  std::span<const std::byte> sent;
  std::vector<std::byte> copy;  // of what was sent, as it was then
  std::shared_ptr<bool> send_has_ended;
  // Of a receive.
  std::span<std::byte> memory;
  uint64_t number = 0;
};

FaultyGroup::FaultyGroup(FaultyNetwork& network, Rank rank, int size) : network_(network), rank_(rank), size_(size) {
  network_.ranks_[FaultyNetwork::idx(rank)].failure = &failure_;
}

FaultyGroup::~FaultyGroup() { network_.ranks_[FaultyNetwork::idx(rank_)].failure = nullptr; }

std::unique_ptr<PendingOp> FaultyGroup::isend(std::span<const std::byte> data, Rank to, int tag) {
  auto op = std::make_unique<Op>(failure_, OpInfo{OpInfo::Kind::kSend, to, tag, data.size()});
  check_op(op->info, rank_, size_);
  op->is_finished = true;  // nothing is under way if one of these throws
  failure_.throw_if_set();
  op->send_has_ended = network_.send(rank_, to, tag, data);
  failure_.throw_if_set();  // this very message may have been the last
  op->is_finished = false;
  op->sent = data;
  op->copy.assign(data.begin(), data.end());
  return op;
}

std::unique_ptr<PendingOp> FaultyGroup::irecv(std::span<std::byte> data, Rank from, int tag, Fit fit) {
  const OpInfo info{OpInfo::Kind::kRecv, from, tag, data.size(), fit};
  check_op(info, rank_, size_);
  failure_.throw_if_set();
  auto op = std::make_unique<Op>(failure_, info);
  op->memory = data;
  op->number = network_.channel(from, rank_, tag).num_posted++;
  return op;
}

bool FaultyGroup::is_done(const Op& op) {
  if (op.info.kind == OpInfo::Kind::kSend) return *op.send_has_ended;
  return network_.channel(op.info.peer, rank_, op.info.tag).messages.contains(op.number);
}

std::size_t FaultyGroup::wait(PendingOp& pending, Deadline deadline) {
  auto& op = dynamic_cast<Op&>(pending);
  failure_.throw_if_set();
  FERRY_CHECK(deadline - network_.time_.now() <= kLongestWait) << describe(op.info) << " has no deadline to speak of";
  if (network_.bug_ == FaultyNetwork::Bug::kNoDeadlines) deadline = Deadline::max();
  const bool in_time = network_.time_.wait(rank_, deadline, [&] { return failure_.is_set() || is_done(op); });
  if (!in_time && failure_.set_deadline_exceeded(op.info))
    network_.log("rank " + std::to_string(rank_.value) + " waits no longer");
  failure_.throw_if_set();
  op.is_finished = true;
  if (op.info.kind == OpInfo::Kind::kRecv) return receive(op);
  FERRY_CHECK(std::ranges::equal(op.sent, op.copy)) << describe(op.info) << " changed under way";
  return op.copy.size();
}

std::size_t FaultyGroup::receive(Op& op) {
  const auto [bytes, send_has_ended] = network_.channel(op.info.peer, rank_, op.info.tag).messages.extract(op.number).mapped();
  *send_has_ended = true;
  failure_.require_fit(op.info, bytes.size());
  std::ranges::copy(bytes, op.memory.begin());
  return bytes.size();
}

}  // namespace ferry

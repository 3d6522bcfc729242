#include "comm/local_group.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "comm/failure_latch.h"
#include "runtime/base/check.h"

namespace ferry {
namespace {

// Messages from one rank to another with one tag. The n-th receive that is posted takes the n-th message that is sent.
struct Channel {
  uint64_t num_sent = 0;
  uint64_t num_posted = 0;
  std::map<uint64_t, std::vector<std::byte>> messages;  // by number, until they are received
};

struct Hub {
  explicit Hub(int size) : has_left(static_cast<std::size_t>(size), false) {}

  std::mutex mutex;  // guards everything below
  std::condition_variable changed;
  std::map<std::tuple<int, int, int>, Channel> channels;  // by (from, to, tag)
  std::vector<bool> has_left;                             // [size]
};

struct LocalOp : PendingOp {
  LocalOp(const OpInfo& op_info, std::span<std::byte> memory, uint64_t message_number)
      : PendingOp(op_info), data(memory), number(message_number) {}

  const std::span<std::byte> data;  // where a receive puts its message
  const uint64_t number;
};

class LocalGroup final : public Group {
 public:
  LocalGroup(std::shared_ptr<Hub> hub, Rank rank, int size) : hub_(std::move(hub)), rank_(rank), size_(size) {}
  ~LocalGroup() override { leave(); }

  const char* name() const override { return "local"; }
  Rank rank() const override { return rank_; }
  int size() const override { return size_; }

  std::unique_ptr<PendingOp> isend(std::span<const std::byte> data, Rank to, int tag) override {
    const OpInfo info{OpInfo::Kind::kSend, to, tag, data.size()};
    check_op(info, rank_, size_);
    failure_.throw_if_set();
    std::vector<std::byte> copy(data.begin(), data.end());
    const std::scoped_lock lock(hub_->mutex);
    Channel& channel = hub_->channels[{rank_.value, to.value, tag}];
    channel.messages.emplace(channel.num_sent++, std::move(copy));
    hub_->changed.notify_all();
    return std::make_unique<LocalOp>(info, std::span<std::byte>(), 0);
  }

  std::unique_ptr<PendingOp> irecv(std::span<std::byte> data, Rank from, int tag, Fit fit) override {
    const OpInfo info{OpInfo::Kind::kRecv, from, tag, data.size(), fit};
    check_op(info, rank_, size_);
    failure_.throw_if_set();
    const std::scoped_lock lock(hub_->mutex);
    Channel& channel = hub_->channels[{from.value, rank_.value, tag}];
    return std::make_unique<LocalOp>(info, data, channel.num_posted++);
  }

  std::size_t wait(PendingOp& pending, Deadline deadline) override {
    auto& op = dynamic_cast<LocalOp&>(pending);
    std::unique_lock lock(hub_->mutex);
    failure_.throw_if_set();
    if (op.info.kind == OpInfo::Kind::kSend) return op.info.bytes;
    Channel& channel = hub_->channels[{op.info.peer.value, rank_.value, op.info.tag}];
    const auto can_go_on = [&] {
      return channel.messages.contains(op.number) || failure_.is_set() || hub_->has_left[peer_idx(op)];
    };
    if (!hub_->changed.wait_until(lock, deadline, can_go_on)) failure_.set_deadline_exceeded(op.info);
    const auto message = channel.messages.find(op.number);
    if (message == channel.messages.end() && hub_->has_left[peer_idx(op)]) {
      failure_.set(ErrorCode::kUnavailable, op.info.peer, "left the group before the " + describe(op.info));
    }
    failure_.throw_if_set();
    failure_.require_fit(op.info, message->second.size());
    const std::vector<std::byte> bytes = std::move(message->second);
    channel.messages.erase(message);
    std::copy(bytes.begin(), bytes.end(), op.data.begin());
    return bytes.size();
  }

  void fail(Rank rank, const std::string& reason) override {
    failure_.set(ErrorCode::kUnavailable, rank, reason);
    const std::scoped_lock lock(hub_->mutex);
    hub_->changed.notify_all();
  }

  std::string async_error() const override { return failure_.message(); }

  void abort() override {
    failure_.set_aborted();
    leave();
  }

 private:
  static std::size_t peer_idx(const LocalOp& op) { return static_cast<std::size_t>(op.info.peer.value); }

  void leave() {
    const std::scoped_lock lock(hub_->mutex);
    hub_->has_left[static_cast<std::size_t>(rank_.value)] = true;
    hub_->changed.notify_all();
  }

  const std::shared_ptr<Hub> hub_;  // shared by the handles of all ranks; the last one frees it
  const Rank rank_;
  const int size_;
  FailureLatch failure_;
};

}  // namespace

std::vector<std::unique_ptr<Group>> make_local_groups(int size) {
  FERRY_CHECK_GE(size, 1);
  const auto hub = std::make_shared<Hub>(size);
  std::vector<std::unique_ptr<Group>> groups;
  groups.reserve(static_cast<std::size_t>(size));
  for (int r = 0; r < size; ++r) groups.push_back(std::make_unique<LocalGroup>(hub, Rank{r}, size));
  return groups;
}

}  // namespace ferry

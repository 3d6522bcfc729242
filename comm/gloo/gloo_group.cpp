#include "comm/gloo/gloo_group.h"

#include <gloo/config.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "comm/failure_latch.h"
#include "comm/gloo/gloo_mesh.h"
#include "comm/gloo/peer_watch.h"
#include "runtime/base/check.h"

namespace ferry {
namespace {

using std::chrono::milliseconds;

// A slot of gloo is our tag: gloo keeps the order of messages per pair and slot, and lets a receive be larger than its message.
struct GlooOp : PendingOp {
  GlooOp(const OpInfo& op_info, std::unique_ptr<gloo::transport::UnboundBuffer> memory)
      : info(op_info), buffer(std::move(memory)) {}

  bool is_recv() const { return info.kind == OpInfo::Kind::kRecv; }

  const OpInfo info;
  const std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
};

// Rounded up, so that gloo's wait never ends before the deadline.
milliseconds time_left(Deadline deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
  return std::clamp<milliseconds>(left, milliseconds(0), std::chrono::hours(24 * 365));
}

std::vector<Rank> all_peers(Rank self, int size) {
  std::vector<Rank> peers;
  for (int r = 0; r < size; ++r) {
    if (Rank{r} != self) peers.push_back(Rank{r});
  }
  return peers;
}

class GlooGroup final : public Group {
 public:
  GlooGroup(std::shared_ptr<gloo::transport::Context> context, Rank rank, int size)
      : rank_(rank),
        size_(size),
        context_(std::move(context)),
        watch_(context_, all_peers(rank, size), [this](Rank lost, const std::string& why) { lose(lost, why); }) {}
  ~GlooGroup() override { watch_.stop(failure_.is_set() ? PeerWatch::Goodbye::kSkip : PeerWatch::Goodbye::kSay); }

  const char* name() const override { return "gloo"; }
  Rank rank() const override { return rank_; }
  int size() const override { return size_; }

  std::unique_ptr<PendingOp> isend(std::span<const std::byte> data, Rank to, int tag) override {
    // gloo has one buffer type for both directions and only reads this one.
    return start({OpInfo::Kind::kSend, to, tag, data.size()}, const_cast<std::byte*>(data.data()));
  }

  std::unique_ptr<PendingOp> irecv(std::span<std::byte> data, Rank from, int tag) override {
    return start({OpInfo::Kind::kRecv, from, tag, data.size()}, data.data());
  }

  void wait(PendingOp& pending, Deadline deadline) override {
    auto& op = dynamic_cast<GlooOp&>(pending);
    begin_wait(op, deadline);
    bool is_done = false;
    std::string error_text;
    try {
      is_done =
          op.is_recv() ? op.buffer->waitRecv(nullptr, time_left(deadline)) : op.buffer->waitSend(nullptr, time_left(deadline));
    } catch (const std::exception& error) {
      error_text = gloo_error_text(error);
    }
    const std::scoped_lock lock(wait_mutex_);
    waiting_op_ = nullptr;
    if (is_done) return;
    if (!error_text.empty()) {
      if (std::chrono::steady_clock::now() >= deadline) {
        failure_.set_deadline_exceeded(op.info);
      } else {
        failure_.set(ErrorCode::kUnavailable, op.info.peer, describe(op.info) + " failed: " + error_text);
      }
    }
    FERRY_CHECK(failure_.is_set()) << " the wait for the " << describe(op.info) << " ended without a reason";
    failure_.throw_if_set();
  }

  void fail(Rank rank, const std::string& reason) override { lose(rank, reason); }

  std::string async_error() const override { return failure_.message(); }

  void abort() override {
    failure_.set_aborted();
    {
      const std::scoped_lock lock(wait_mutex_);
      wake();
    }
    for (const Rank peer : all_peers(rank_, size_)) context_->getPair(peer.value)->close();
  }

 private:
  std::unique_ptr<PendingOp> start(const OpInfo& info, std::byte* memory) {
    check_op(info, rank_, size_);
    failure_.throw_if_set();
    auto op = std::make_unique<GlooOp>(info, context_->createUnboundBuffer(memory, info.bytes));
    try {
      const auto slot = static_cast<uint64_t>(info.tag);
      if (op->is_recv()) {
        op->buffer->recv(info.peer.value, slot);
      } else {
        op->buffer->send(info.peer.value, slot);
      }
    } catch (const std::exception& error) {
      failure_.set(ErrorCode::kUnavailable, info.peer, describe(info) + " failed: " + gloo_error_text(error));
      failure_.throw_if_set();
    }
    return op;
  }

  void begin_wait(GlooOp& op, Deadline deadline) {
    const std::scoped_lock lock(wait_mutex_);
    failure_.throw_if_set();
    waiting_op_ = &op;
    waiting_deadline_ = deadline;
  }

  // Ends the current wait, if there is one, without closing connections. Under wait_mutex_, after failure_ was set.
  void wake() {
    if (waiting_op_ == nullptr) return;
    if (waiting_op_->is_recv()) {
      waiting_op_->buffer->abortWaitRecv();
    } else {
      waiting_op_->buffer->abortWaitSend();
    }
  }

  // A deadline of our own makes gloo close every connection, which looks like the loss of every peer, and makes healthy peers
  // leave: then the waiting thread reports what really happened.
  void lose(Rank rank, const std::string& reason) {
    const std::scoped_lock lock(wait_mutex_);
    if (waiting_op_ != nullptr && std::chrono::steady_clock::now() >= waiting_deadline_) return;
    failure_.set(ErrorCode::kUnavailable, rank, reason);
    wake();
  }

  const Rank rank_;
  const int size_;
  FailureLatch failure_;
  std::mutex wait_mutex_;         // guards the two below
  GlooOp* waiting_op_ = nullptr;  // what wait() is in, else null
  Deadline waiting_deadline_;
  const std::shared_ptr<gloo::transport::Context> context_;  // shared with the watch and with every buffer
  PeerWatch watch_;                                          // last: its threads use all of the above
};

}  // namespace

std::unique_ptr<Group> make_gloo_group(Group& bootstrap, const GlooOptions& options) {
  auto context = connect_mesh(bootstrap, all_peers(bootstrap.rank(), bootstrap.size()), options);
  auto group = std::make_unique<GlooGroup>(std::move(context), bootstrap.rank(), bootstrap.size());
  bootstrap.barrier(std::chrono::steady_clock::now() + options.connect_timeout);
  return group;
}

std::string gloo_version() {
  return "gloo " + std::to_string(GLOO_VERSION_MAJOR) + "." + std::to_string(GLOO_VERSION_MINOR) + "." +
         std::to_string(GLOO_VERSION_PATCH) + " (tcp)";
}

}  // namespace ferry

#include "comm/gloo/gloo_group.h"

#include <gloo/config.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>
#include <vector>

#include "comm/failure_latch.h"
#include "comm/gloo/frame_taker.h"
#include "comm/gloo/gloo_mesh.h"
#include "comm/gloo/peer_watch.h"
#include "runtime/base/check.h"

namespace ferry {
namespace {

using std::chrono::milliseconds;

using UnboundBuffer = gloo::transport::UnboundBuffer;

// gloo tells nobody how long a message was, and ends the process when one is larger than its receive. So a message travels as a
// frame, its length and first bytes, for which every receive has room, and what is longer follows as a second message of
// gloo's. Frames have their tag as their slot, where gloo keeps the order. The second message's slot tells tag, number and
// length: a receive of an exact size is posted with its frame, and only a message of that size will ever be written to it; any
// other receive posts it once the frame has told the length. gloo moves nothing of a message whose receive is not posted, so
// after a long message a FrameTaker looks out for the next one's frame while its receiver is busy.
constexpr std::size_t kFrameBytes = std::size_t{64} << 10;

struct Frame {
  uint64_t message_bytes;
  std::array<std::byte, kFrameBytes> bytes;
};

// Of the second part of the number-th message with a tag from one rank to another.
uint64_t rest_slot(int tag, uint32_t number, uint64_t message_bytes) {
  static_assert(Group::kNumInnerTags <= 1 << 11);
  FERRY_CHECK_LT(message_bytes, uint64_t{1} << 40);
  return uint64_t{1} << 63 | static_cast<uint64_t>(tag) << 52 | uint64_t{number & 0xfffU} << 40 | message_bytes;
}

struct GlooOp : PendingOp {
  GlooOp(const OpInfo& op_info, std::byte* op_memory, FrameTaker& frame_taker)
      : PendingOp(op_info), memory(op_memory), taker(frame_taker) {}
  ~GlooOp() override { take_back(); }

  /// From here on the taker leaves the frame alone.
  void take_back() {
    if (is_with_taker) taker.release(*frame_buffer);
    is_with_taker = false;
  }

  bool is_recv() const { return info.kind == OpInfo::Kind::kRecv; }

  std::byte* const memory;       // the caller's, only read by a send
  FrameTaker& taker;             // the group's
  bool is_with_taker = false;    // which may take the frame meanwhile
  bool has_frame = false;        // of a receive: what its frame says is done. The taker's until it is taken back
  uint32_t number = 0;           // of the message, among those of its peer, tag and direction
  std::unique_ptr<Frame> frame;  // before the buffers, which use it
  std::unique_ptr<UnboundBuffer> frame_buffer;
  std::unique_ptr<UnboundBuffer> rest_buffer;  // null while nothing but the frame is expected
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
  GlooGroup(std::shared_ptr<gloo::transport::Context> context, Rank rank, int size, milliseconds goodbye_timeout)
      : rank_(rank),
        size_(size),
        context_(std::move(context)),
        watch_(context_, all_peers(rank, size), goodbye_timeout,
               [this](Rank lost, const std::string& why) { lose(lost, why); }) {
    for (auto& numbers : numbers_) numbers.resize(static_cast<std::size_t>(size) * kNumInnerTags);
    was_long_.resize(static_cast<std::size_t>(size) * kNumInnerTags);
  }
  ~GlooGroup() override { watch_.stop(failure_.is_set() ? PeerWatch::Goodbye::kSkip : PeerWatch::Goodbye::kSay); }

  const char* name() const override { return "gloo"; }
  Rank rank() const override { return rank_; }
  int size() const override { return size_; }

  std::unique_ptr<PendingOp> isend(std::span<const std::byte> data, Rank to, int tag) override {
    // gloo has one buffer type for both directions and only reads this one.
    auto op = make_op({OpInfo::Kind::kSend, to, tag, data.size()}, const_cast<std::byte*>(data.data()));
    const std::size_t framed = std::min(data.size(), kFrameBytes);
    op->frame->message_bytes = data.size();
    std::copy_n(data.begin(), framed, op->frame->bytes.begin());
    start(*op, [&] {
      op->frame_buffer = context_->createUnboundBuffer(op->frame.get(), sizeof(uint64_t) + framed);
      op->frame_buffer->send(to.value, static_cast<uint64_t>(tag));
      if (data.size() == framed) return;
      op->rest_buffer = context_->createUnboundBuffer(op->memory + framed, data.size() - framed);
      op->rest_buffer->send(to.value, rest_slot(tag, op->number, data.size()));
    });
    return op;
  }

  std::unique_ptr<PendingOp> irecv(std::span<std::byte> data, Rank from, int tag, Fit fit) override {
    auto op = make_op({OpInfo::Kind::kRecv, from, tag, data.size(), fit}, data.data());
    start(*op, [&] {
      op->frame_buffer = context_->createUnboundBuffer(op->frame.get(), sizeof(Frame));
      op->frame_buffer->recv(from.value, static_cast<uint64_t>(tag));
      if (fit == Fit::kExact && data.size() > kFrameBytes) post_rest(*op, data.size());
    });
    op->is_with_taker = fit == Fit::kUpTo && was_long_[stream_of(op->info)];
    if (op->is_with_taker) taker_.take(*op->frame_buffer, [this, &receive = *op] { take_early(receive); });
    return op;
  }

  std::size_t wait(PendingOp& pending, Deadline deadline) override {
    auto& op = dynamic_cast<GlooOp&>(pending);
    op.take_back();
    failure_.throw_if_set();  // also where the taker has left nothing to wait for
    if (!op.has_frame) {
      wait_for_buffer(op, *op.frame_buffer, deadline);
      if (op.is_recv()) take_frame(op);
    }
    if (op.rest_buffer != nullptr) wait_for_buffer(op, *op.rest_buffer, deadline);
    if (!op.is_recv()) return op.info.bytes;
    const auto bytes = static_cast<std::size_t>(op.frame->message_bytes);
    was_long_[stream_of(op.info)] = bytes > kFrameBytes;
    return bytes;
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
  static std::size_t stream_of(const OpInfo& info) {
    return static_cast<std::size_t>(info.peer.value) * kNumInnerTags + static_cast<std::size_t>(info.tag);
  }

  std::unique_ptr<GlooOp> make_op(const OpInfo& info, std::byte* memory) {
    check_op(info, rank_, size_);
    failure_.throw_if_set();
    auto op = std::make_unique<GlooOp>(info, memory, taker_);
    op->number = numbers_[static_cast<std::size_t>(info.kind)][stream_of(info)]++;
    op->frame = std::make_unique_for_overwrite<Frame>();
    return op;
  }

  /// Runs `call`, whose exceptions are failures of `op`.
  template <class Call>
  void start(const GlooOp& op, Call&& call) {
    try {
      call();
    } catch (const std::exception& error) {
      failure_.set(ErrorCode::kUnavailable, op.info.peer, describe(op.info) + " failed: " + gloo_error_text(error));
      failure_.throw_if_set();
    }
  }

  void post_rest(GlooOp& op, std::size_t message_bytes) {
    op.rest_buffer = context_->createUnboundBuffer(op.memory + kFrameBytes, message_bytes - kFrameBytes);
    op.rest_buffer->recv(op.info.peer.value, rest_slot(op.info.tag, op.number, message_bytes));
  }

  /// Copies what the received frame holds and asks for the rest.
  void take_frame(GlooOp& op) {
    const uint64_t bytes = op.frame->message_bytes;
    failure_.require_fit(op.info, bytes);
    std::copy_n(op.frame->bytes.begin(), std::min<std::size_t>(bytes, kFrameBytes), op.memory);
    if (bytes > kFrameBytes && op.rest_buffer == nullptr) start(op, [&] { post_rest(op, bytes); });
  }

  /// On the taker's thread. What fails has set failure_, which every wait throws, also the one that the group's thread is in.
  void take_early(GlooOp& op) {
    try {
      take_frame(op);
      op.has_frame = true;
    } catch (const Error&) {
      FERRY_CHECK(failure_.is_set());
      const std::scoped_lock lock(wait_mutex_);
      wake();
    }
  }

  void wait_for_buffer(const GlooOp& op, UnboundBuffer& buffer, Deadline deadline) {
    begin_wait(op, buffer, deadline);
    bool is_done = false;
    std::string error_text;
    try {
      is_done = op.is_recv() ? buffer.waitRecv(nullptr, time_left(deadline)) : buffer.waitSend(nullptr, time_left(deadline));
    } catch (const std::exception& error) {
      error_text = gloo_error_text(error);
    }
    const std::scoped_lock lock(wait_mutex_);
    waiting_buffer_ = nullptr;
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

  void begin_wait(const GlooOp& op, UnboundBuffer& buffer, Deadline deadline) {
    const std::scoped_lock lock(wait_mutex_);
    failure_.throw_if_set();
    waiting_buffer_ = &buffer;
    waiting_for_recv_ = op.is_recv();
    waiting_deadline_ = deadline;
  }

  // Ends the current wait, if there is one, without closing connections. Under wait_mutex_, after failure_ was set.
  void wake() {
    if (waiting_buffer_ == nullptr) return;
    if (waiting_for_recv_) {
      waiting_buffer_->abortWaitRecv();
    } else {
      waiting_buffer_->abortWaitSend();
    }
  }

  // A deadline of our own makes gloo close every connection, which looks like the loss of every peer, and makes healthy peers
  // leave: then the waiting thread reports what really happened.
  void lose(Rank rank, const std::string& reason) {
    const std::scoped_lock lock(wait_mutex_);
    if (waiting_buffer_ != nullptr && std::chrono::steady_clock::now() >= waiting_deadline_) return;
    failure_.set(ErrorCode::kUnavailable, rank, reason);
    wake();
  }

  const Rank rank_;
  const int size_;
  FailureLatch failure_;
  std::array<std::vector<uint32_t>, 2> numbers_;  // [send, receive][rank, tag] of the next message
  std::vector<bool> was_long_;                    // [rank, tag] whether the last message received was longer than a frame
  std::mutex wait_mutex_;                         // guards the three below
  UnboundBuffer* waiting_buffer_ = nullptr;       // what wait() is in, else null
  bool waiting_for_recv_ = false;
  Deadline waiting_deadline_;
  const std::shared_ptr<gloo::transport::Context> context_;  // shared with the watch and with every buffer
  FrameTaker taker_;
  PeerWatch watch_;  // last: its threads use all of the above
};

}  // namespace

std::unique_ptr<Group> make_gloo_group(Group& bootstrap, const GlooOptions& options) {
  auto context = connect_mesh(bootstrap, all_peers(bootstrap.rank(), bootstrap.size()), options);
  auto group = std::make_unique<GlooGroup>(std::move(context), bootstrap.rank(), bootstrap.size(), options.goodbye_timeout);
  bootstrap.barrier(std::chrono::steady_clock::now() + options.connect_timeout);
  return group;
}

std::string gloo_version() {
  return "gloo " + std::to_string(GLOO_VERSION_MAJOR) + "." + std::to_string(GLOO_VERSION_MINOR) + "." +
         std::to_string(GLOO_VERSION_PATCH) + " (tcp)";
}

}  // namespace ferry

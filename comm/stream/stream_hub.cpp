#include "comm/stream/stream_hub.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "comm/keepalive.h"
#include "comm/poll_tools.h"
#include "comm/stream/stream_state.h"
#include "runtime/base/check.h"

namespace ferry {
namespace {

// An answer from this host is often there before a thread would have fallen asleep and been woken. Measured with three ranks on
// two cores, where a token took 0.71 ms without this and takes 0.46 (0.50 with 20 us, 0.53 with 200): whoever wants the core
// meanwhile has it.
constexpr std::chrono::microseconds kLooksFor{50};

StreamOp& stream_op(PendingOp& op) { return dynamic_cast<StreamOp&>(op); }

}  // namespace

class StreamHub::Core {
 public:
  explicit Core(OnLinkEnd on_end) : on_end_(std::move(on_end)), watch_([this] { watch(); }) {}
  ~Core() { FERRY_CHECK(!watch_.joinable()) << " the hub was not stopped"; }

  void stop() {
    {
      const std::scoped_lock lock(mutex_);
      is_stopping_ = true;
    }
    watch_bell_.ring();
    watch_.join();
  }

  std::shared_ptr<StreamState> add(FileDescriptor socket, Rank peer) {
    const int no_delay = 1;  // neither does anything to a socket that is not TCP's
    setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &no_delay, sizeof(no_delay));
    enable_keepalive(socket.get());
    auto state = std::make_shared<StreamState>(std::move(socket), peer, mutex_);
    const std::scoped_lock lock(mutex_);
    links_.push_back(state);
    ring_watch();
    return state;
  }

  void remove(const std::shared_ptr<StreamState>& state) {
    const std::scoped_lock lock(mutex_);
    state->end_was_told = true;
    state->say_goodbye();
    std::erase(links_, state);
    ring_watch();
    waiter_bell_.ring();
  }

  void fail(StreamState& state, const std::string& reason) {
    const std::scoped_lock lock(mutex_);
    state.break_off(LinkEnd::kBroken, ErrorCode::kUnavailable, reason);
    ring_watch();
    waiter_bell_.ring();
  }

  std::unique_ptr<PendingOp> send(const std::shared_ptr<StreamState>& state, std::span<const std::byte> data, int tag) {
    auto op = make_op(state, {OpInfo::Kind::kSend, state->peer(), tag, data.size()});
    const std::scoped_lock lock(mutex_);
    state->failure().throw_if_set();
    state->post_send(*op, data);
    tell_watch(*state);
    return op;
  }

  std::unique_ptr<PendingOp> receive(const std::shared_ptr<StreamState>& state, std::span<std::byte> data, int tag, Fit fit) {
    auto op = make_op(state, {OpInfo::Kind::kRecv, state->peer(), tag, data.size(), fit});
    op->memory = data;
    const std::scoped_lock lock(mutex_);
    state->post_receive(*op);
    tell_watch(*state);
    return op;
  }

  /// Which op is done or has a link that failed; nothing at the deadline.
  std::optional<std::size_t> await(std::span<PendingOp* const> ops, Deadline deadline) {
    std::unique_lock lock(mutex_);
    for (PendingOp* op : ops) move(*stream_op(*op).state);
    while (true) {
      const auto ended = std::ranges::find_if(ops, [](PendingOp* op) { return has_ended(stream_op(*op)); });
      const bool is_late = ended == ops.end() && std::chrono::steady_clock::now() >= deadline;
      if (ended != ops.end() || is_late) {
        for (const auto& link : links_) tell_watch(*link);
        if (is_late) return {};
        return static_cast<std::size_t>(ended - ops.begin());
      }
      poll_once(lock, deadline);
    }
  }

  /// The bytes of an op that await() named. Throws what its link failed with.
  std::size_t result_of(const StreamOp& op) {
    const std::scoped_lock lock(mutex_);
    if (!op.is_done) op.state->failure().throw_if_set();
    FERRY_CHECK(op.is_done) << describe(op.info);
    return op.num_moved;
  }

 private:
  static bool has_ended(const StreamOp& op) { return op.is_done || op.state->failure().is_set(); }

  static std::unique_ptr<StreamOp> make_op(const std::shared_ptr<StreamState>& state, const OpInfo& info) {
    FERRY_CHECK(info.tag >= 0 && info.tag < Link::kNumTags) << " " << describe(info);
    return std::make_unique<StreamOp>(info, state);
  }

  static void move(StreamState& link) {
    link.write_some();
    link.read_some();
  }

  // The watch sleeps through small messages: it has to hear of large ones, and of ends.
  void tell_watch(const StreamState& link) {
    const bool has_ended = link.failure().is_set() && !link.end_was_told;
    if (has_ended || (num_waiting_ == 0 && link.background_events() != 0)) ring_watch();
  }
  void ring_watch() { watch_bell_.ring(); }

  /// Lets the thread that waits sleep until something moves.
  void poll_once(std::unique_lock<std::mutex>& lock, Deadline deadline) {
    polled_.assign(1, {.fd = waiter_bell_.fd(), .events = POLLIN, .revents = 0});
    polled_links_.clear();
    for (const auto& link : links_) {
      if (link->wanted_events() == 0) continue;
      polled_.push_back({.fd = link->socket(), .events = link->wanted_events(), .revents = 0});
      polled_links_.push_back(link);
    }
    ++num_waiting_;
    lock.unlock();
    if (!yield_until_ready()) poll_until(polled_, deadline);
    lock.lock();
    --num_waiting_;
    if (polled_.front().revents != 0) waiter_bell_.silence();
    for (std::size_t i = 0; i < polled_links_.size(); ++i) {
      if (polled_[i + 1].revents != 0) move(*polled_links_[i]);
    }
    polled_links_.clear();
  }

  /// Looks for kLooksFor whether something moves, letting whoever wants this core have it meanwhile.
  bool yield_until_ready() {
    const auto start = std::chrono::steady_clock::now();
    do {
      if (poll(polled_.data(), polled_.size(), 0) > 0) return true;
      sched_yield();
    } while (std::chrono::steady_clock::now() - start < kLooksFor);
    return false;
  }

  /// Notices ends, and moves what is large while nobody waits.
  void watch() {
    std::vector<pollfd> polled;
    std::vector<std::shared_ptr<StreamState>> links;
    std::unique_lock lock(mutex_);
    while (!is_stopping_) {
      tell_ends(lock);
      polled.assign(1, {.fd = watch_bell_.fd(), .events = POLLIN, .revents = 0});
      links.clear();
      for (const auto& link : links_) {
        if (!link->is_watched || link->failure().is_set()) continue;
        const short moved = num_waiting_ == 0 ? link->background_events() : short{0};
        polled.push_back({.fd = link->socket(), .events = static_cast<short>(moved | POLLRDHUP), .revents = 0});
        links.push_back(link);
      }
      lock.unlock();
      poll(polled.data(), polled.size(), -1);
      lock.lock();
      if (polled.front().revents != 0) watch_bell_.silence();
      for (std::size_t i = 0; i < links.size(); ++i) look_after(*links[i], polled[i + 1].revents);
      if (num_waiting_ > 0) waiter_bell_.ring();
    }
  }

  void look_after(StreamState& link, short events) const {
    const bool hung_up = (events & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
    if (hung_up) return link.note_hang_up();
    if (events != 0 && num_waiting_ == 0) move(link);
  }

  void tell_ends(std::unique_lock<std::mutex>& lock) {
    while (true) {
      const auto ended =
          std::ranges::find_if(links_, [](const auto& link) { return link->failure().is_set() && !link->end_was_told; });
      if (ended == links_.end()) return;
      const std::shared_ptr<StreamState> link = *ended;
      link->end_was_told = true;
      if (!on_end_) continue;
      lock.unlock();
      on_end_(link->peer(), link->end(), link->failure().message());
      lock.lock();
    }
  }

  const OnLinkEnd on_end_;
  const Bell watch_bell_, waiter_bell_;
  std::mutex mutex_;  // guards all below but what says otherwise
  std::vector<std::shared_ptr<StreamState>> links_;
  int num_waiting_ = 0;  // threads in poll_once, at most one
  bool is_stopping_ = false;
  std::vector<pollfd> polled_;                              // of the thread that waits
  std::vector<std::shared_ptr<StreamState>> polled_links_;  // likewise
  std::thread watch_;                                       // last: it uses all of the above
};

/// A link whose hub may be gone.
class StreamLink final : public Link {
 public:
  StreamLink(std::shared_ptr<StreamHub::Core> core, std::shared_ptr<StreamState> state)
      : core_(std::move(core)), state_(std::move(state)) {}
  ~StreamLink() override { core_->remove(state_); }

  Rank peer() const override { return state_->peer(); }
  std::unique_ptr<PendingOp> isend(std::span<const std::byte> data, int tag) override { return core_->send(state_, data, tag); }
  std::unique_ptr<PendingOp> irecv(std::span<std::byte> data, int tag, Fit fit) override {
    return core_->receive(state_, data, tag, fit);
  }
  std::size_t wait(PendingOp& op, Deadline deadline) override {
    PendingOp* const ops[] = {&op};
    if (!core_->await(ops, deadline))
      throw Error(ErrorCode::kDeadlineExceeded,
                  "rank " + std::to_string(peer().value) + ": silent at the deadline of the " + describe(op.info));
    return core_->result_of(stream_op(op));
  }
  void fail(const std::string& reason) override { core_->fail(*state_, reason); }
  std::optional<Error> failure() const override {
    try {
      state_->failure().throw_if_set();
    } catch (const Error& error) {
      return error;
    }
    return {};
  }

 private:
  const std::shared_ptr<StreamHub::Core> core_;
  const std::shared_ptr<StreamState> state_;
};

StreamHub::StreamHub(OnLinkEnd on_end) : core_(std::make_shared<Core>(std::move(on_end))) {}
StreamHub::~StreamHub() { core_->stop(); }

std::unique_ptr<Link> StreamHub::adopt(FileDescriptor socket, Rank peer) {
  return std::make_unique<StreamLink>(core_, core_->add(std::move(socket), peer));
}

std::size_t StreamHub::wait_any(std::span<PendingOp* const> ops, Deadline deadline) {
  FERRY_CHECK(!ops.empty());
  const std::optional<std::size_t> ended = core_->await(ops, deadline);
  if (ended) return *ended;
  throw Error(ErrorCode::kDeadlineExceeded, "none of " + std::to_string(ops.size()) + " peers answered; the first is rank " +
                                                std::to_string(ops.front()->info.peer.value));
}

}  // namespace ferry

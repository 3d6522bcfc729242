#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "comm/stream/stream_hub.h"
#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "tests/comm/link_pair.h"
#include "tests/fuzz/script.h"
#include "tests/fuzz/targets.h"
#include "tests/support/eventually.h"

// A link whose other end is a stranger who writes what he likes on the socket, while this end posts receives, waits for them
// and drops them.

namespace ferry::fuzz {
namespace {

constexpr std::size_t kFrameHead = 16;  // "FLK1" | tag u32 | bytes u64

/// The other end: what the socket took of it.
class Stranger {
 public:
  explicit Stranger(FileDescriptor socket) : socket_(std::move(socket)) {
    const int bytes = 16 << 10;
    setsockopt(socket_.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
  }

  /// How much of it the socket took.
  std::size_t say(Input bytes) {
    const ssize_t sent = send(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    const auto taken = static_cast<std::size_t>(std::max<ssize_t>(sent, 0));
    said_.insert(said_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(taken));
    return taken;
  }
  void listen() {
    std::vector<std::byte> heard(4096);
    [[maybe_unused]] const ssize_t bytes = recv(socket_.get(), heard.data(), heard.size(), MSG_DONTWAIT);
  }
  void hang_up(int how) { shutdown(socket_.get(), how); }

  /// The payloads of the whole messages that it said, by tag, up to where they are none.
  std::map<uint32_t, std::vector<Input>> messages() const {
    std::map<uint32_t, std::vector<Input>> found;
    Input rest = said_;
    while (rest.size() >= kFrameHead && std::memcmp(rest.data(), "FLK1", 4) == 0) {
      uint32_t tag = 0;
      uint64_t bytes = 0;
      std::memcpy(&tag, rest.data() + 4, sizeof(tag));
      std::memcpy(&bytes, rest.data() + 8, sizeof(bytes));
      if (tag >= static_cast<uint32_t>(Link::kNumTags) || bytes > rest.size() - kFrameHead) break;
      found[tag].push_back(rest.subspan(kFrameHead, bytes));
      rest = rest.subspan(kFrameHead + bytes);
    }
    return found;
  }

  /// What of it may be on its way or read ahead.
  static constexpr std::size_t kUnderWay = (std::size_t{2} * 16 + 64 + 16) << 10;

 private:
  FileDescriptor socket_;
  std::vector<uint8_t> said_;
};

struct PostedReceive {
  std::vector<std::byte> memory;
  std::unique_ptr<PendingOp> op;  // none once it was dropped
  bool is_done = false;
  std::size_t num_bytes = 0;
};

class LinkUnderAttack {
 public:
  explicit LinkUnderAttack(Script script) : script_(script) {
    auto [near, far] = connected_sockets();
    link_ = hub_.adopt(std::move(near), Rank{1});
    stranger_ = std::make_unique<Stranger>(std::move(far));
    pulse_ = link_->isend({}, 0);
  }

  void run() {
    while (!script_.has_ended() && receives_.size() < 64) step();
    for (PostedReceive& receive : receives_) settle(receive);
    check_what_came();
    check_neighbours();
    // Operations go before their link.
    pulse_.reset();
    receives_.clear();
    sends_.clear();
    link_.reset();
    FERRY_CHECK_LE(num_ends_, 1);
  }

 private:
  void step() {
    switch (script_.number() % 12) {
      case 0: say(script_.bytes(script_.number())); return;
      case 1: say(frame()); return;
      case 2: return flood();
      case 3: return post_receive();
      case 4: return drop(receives_);
      case 5: return receives_.empty() ? move() : settle(receives_[script_.number() % receives_.size()]);
      case 6: return post_send();
      case 7: return stranger_->listen();
      case 8: return stranger_->hang_up(script_.number() % 2 == 0 ? SHUT_WR : SHUT_RDWR);
      case 9: return move();
      case 10: return wait_for_any();
      case 11: return link_->fail("it was told so");
    }
  }

  /// Of a message: 0 to 256 KiB. What has 64 KiB and more is moved while nobody waits.
  std::size_t size() {
    const std::size_t low = script_.number(), middle = script_.number(), high = script_.number() % 4;
    return low + 256 * middle + 65536 * high;
  }

  /// Sleeps until something has come, a millisecond at most.
  void wait_for_any() {
    std::vector<PendingOp*> under_way;
    for (const PostedReceive& receive : receives_) {
      if (receive.op != nullptr && !receive.is_done) under_way.push_back(receive.op.get());
    }
    if (under_way.empty()) return;
    attempt([&] { hub_.wait_any(under_way, std::chrono::steady_clock::now() + std::chrono::milliseconds(1)); });
  }

  /// Lets the link move what it can. An operation that is done is still one of its link.
  void move() { settle_op(*pulse_); }

  /// Until all was said or nothing moves any more: then it says that it was not.
  bool say(Input bytes) {
    bool has_moved = true;
    while (!bytes.empty()) {
      const std::size_t taken = stranger_->say(bytes);
      bytes = bytes.subspan(taken);
      if (taken == 0 && !has_moved) return false;
      has_moved = taken > 0;
      if (!bytes.empty()) move();
    }
    return true;
  }

  std::vector<uint8_t> frame() {
    const uint32_t tag = static_cast<uint32_t>(script_.number()) % 4;
    const uint64_t bytes = size();
    std::vector<uint8_t> said(kFrameHead + bytes);
    std::memcpy(said.data(), "FLK1", 4);
    std::memcpy(said.data() + 4, &tag, sizeof(tag));
    std::memcpy(said.data() + 8, &bytes, sizeof(bytes));
    for (std::size_t i = 0; i < bytes; ++i) said[kFrameHead + i] = static_cast<uint8_t>(num_frames_ + i * 31);
    ++num_frames_;
    return said;
  }

  /// One message again and again, until it was said often or nothing moves any more.
  void flood() {
    const std::vector<uint8_t> once = frame();
    std::vector<uint8_t> said;
    do {
      said.insert(said.end(), once.begin(), once.end());
    } while (said.size() + once.size() <= 4096);
    for (std::size_t times = script_.number(); times > 0 && say(said); --times) {
    }
  }

  void post_receive() {
    const int tag = static_cast<int>(script_.number() % 4);
    const Fit fit = script_.number() % 2 == 0 ? Fit::kUpTo : Fit::kExact;
    PostedReceive& receive = receives_.emplace_back();
    receive.memory.resize(size());
    num_posted_ += receive.memory.size();
    attempt([&] { receive.op = link_->irecv(receive.memory, tag, fit); });
  }

  void post_send() {
    kept_.resize(std::size_t{1} << 18);
    const std::size_t bytes = size();
    attempt([&] { sends_.push_back(link_->isend(std::span(kept_).first(bytes), 5)); });
    if (sends_.size() > 4) sends_.erase(sends_.begin());
  }

  void drop(std::vector<PostedReceive>& receives) {
    if (receives.empty()) return;
    PostedReceive& dropped = receives[script_.number() % receives.size()];
    if (!dropped.is_done) dropped.op.reset();
  }

  void settle(PostedReceive& receive) {
    if (receive.op == nullptr || receive.is_done) return;
    const auto bytes = settle_op(*receive.op);
    receive.is_done = bytes.has_value();
    receive.num_bytes = bytes.value_or(0);
  }

  std::optional<std::size_t> settle_op(PendingOp& op) {
    std::optional<std::size_t> bytes;
    attempt([&] { bytes = link_->wait(op, Deadline{}); });
    return bytes;
  }

  template <class Call>
  static void attempt(const Call& call) {
    try {
      call();
    } catch (const Error& error) {
      FERRY_CHECK(error.code() == ErrorCode::kDeadlineExceeded || error.code() == ErrorCode::kUnavailable ||
                  error.code() == ErrorCode::kInternal)
          << " " << error.what();
    }
  }

  /// Each receive got a message that was said, in the order of its tag, and what nobody received is no more than a link keeps.
  void check_what_came() {
    auto said = stranger_->messages();
    std::map<uint32_t, std::size_t> next;
    std::size_t num_kept = 0;
    for (const PostedReceive& receive : receives_) {
      if (!receive.is_done) continue;
      const OpInfo& info = receive.op->info;
      FERRY_CHECK(info.fit == Fit::kExact ? receive.num_bytes == info.bytes : receive.num_bytes <= info.bytes);
      const auto tag = static_cast<uint32_t>(info.tag);
      const auto is_it = [&](Input message) {
        return std::ranges::equal(std::as_bytes(message), std::span(receive.memory).first(receive.num_bytes));
      };
      // A receive that was dropped may have taken those between along.
      while (next[tag] < said[tag].size() && !is_it(said[tag][next[tag]])) ++next[tag];
      FERRY_CHECK_LT(next[tag]++, said[tag].size()) << " for the message of " << describe_size(receive);
    }
    for (const auto& [tag, messages] : said) {
      for (std::size_t i = next[tag]; i < messages.size(); ++i) num_kept += messages[i].size() + 64;
    }
    FERRY_CHECK_LE(num_kept, Link::kMaxUnexpectedBytes + num_posted_ + 5 * Stranger::kUnderWay);
  }

  static std::string describe_size(const PostedReceive& receive) { return std::to_string(receive.num_bytes) + " bytes"; }

  /// What the stranger does is nothing to another link of the hub.
  void check_neighbours() {
    const std::vector<std::byte> sent(100, std::byte{7});
    std::vector<std::byte> got(100);
    const auto receive = neighbours_.near->irecv(got, 1, Fit::kExact);
    const auto send = neighbours_.far->isend(sent, 1);
    neighbours_.near->wait(*receive, std::chrono::steady_clock::now() + kTestLimit);
    FERRY_CHECK(got == sent);
  }

  Script script_;
  std::vector<std::byte> kept_;
  std::size_t num_frames_ = 0, num_posted_ = 0;
  std::atomic<int> num_ends_ = 0;
  StreamHub hub_{[this](Rank, LinkEnd, const std::string&) { ++num_ends_; }}, other_hub_;
  LinkPair neighbours_{hub_, Rank{2}, other_hub_, Rank{0}};
  std::unique_ptr<Stranger> stranger_;
  std::unique_ptr<Link> link_;
  std::unique_ptr<PendingOp> pulse_;
  std::vector<std::unique_ptr<PendingOp>> sends_;
  std::vector<PostedReceive> receives_;
};

}  // namespace

void attack_link(Input input) { LinkUnderAttack(Script(input)).run(); }

}  // namespace ferry::fuzz

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "comm/rendezvous/join.h"
#include "comm/rendezvous/join_wire.h"
#include "comm/rendezvous/rendezvous.h"
#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/net/listeners.h"
#include "tests/fuzz/script.h"
#include "tests/fuzz/targets.h"
#include "tests/support/eventually.h"

// Both sides of a meeting under attack over a loopback socket: strangers come to who lets newcomers in, and a newcomer comes to
// a stranger.

namespace ferry::fuzz {
namespace {

using std::chrono::milliseconds;
using MetBytes = std::vector<std::byte>;

const std::string kMetKey = "met", kNobodysKey = "guessed";

Deadline within(milliseconds time) { return std::chrono::steady_clock::now() + time; }

/// Reads what `bytes` has room for, or what comes of it within a tenth of a second each time.
std::size_t hear(int socket, std::span<std::byte> bytes) {
  std::size_t num_heard = 0;
  while (num_heard < bytes.size()) {
    pollfd polled{.fd = socket, .events = POLLIN, .revents = 0};
    if (poll(&polled, 1, 100) <= 0) break;
    const ssize_t got = recv(socket, bytes.data() + num_heard, bytes.size() - num_heard, MSG_DONTWAIT);
    if (got <= 0) break;
    num_heard += static_cast<std::size_t>(got);
  }
  return num_heard;
}

void say(int socket, std::span<const std::byte> bytes) {
  [[maybe_unused]] const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

/// Closed without a trace: thousands a second would use up the ports.
void reset_at_close(int socket) {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
}

/// Who comes to a Rendezvous and does not keep to its rules.
class StrangeGuest {
 public:
  explicit StrangeGuest(const std::string& address) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    place.sin_port = htons(static_cast<uint16_t>(parse_host_port("fuzz", address).port));
    FERRY_CHECK_EQ(connect(socket_.get(), reinterpret_cast<sockaddr*>(&place), sizeof(place)), 0);
    reset_at_close(socket_.get());
  }

  void say_raw(Input bytes) { say(socket_.get(), std::as_bytes(bytes)); }

  /// A hello by the rules, of which the first bytes are said; whether they are all.
  bool say_hello(const std::string& key, Input introduction, std::size_t num_said) {
    MetBytes challenge(kChallengeBytes);
    if (hear(socket_.get(), challenge) < challenge.size()) return false;
    const auto said = std::as_bytes(introduction);
    const JoinHello hello{.incarnation = num_said, .nonce = {}, .introduction = {said.begin(), said.end()}};
    hello_ = encode_hello(hello, decode_challenge(challenge), key);
    num_said_ = std::min(num_said, hello_.size());
    say(socket_.get(), std::span(hello_).first(num_said_));
    return num_said_ == hello_.size();
  }
  void say_rest() { say(socket_.get(), std::span(hello_).subspan(std::exchange(num_said_, hello_.size()))); }
  void hear_some() {
    MetBytes answer(256);
    [[maybe_unused]] const ssize_t got = recv(socket_.get(), answer.data(), answer.size(), MSG_DONTWAIT);
  }
  void hang_up() { shutdown(socket_.get(), SHUT_WR); }

 private:
  FileDescriptor socket_;
  MetBytes hello_;
  std::size_t num_said_ = 0;
};

class RendezvousUnderAttack {
 public:
  explicit RendezvousUnderAttack(Script script) : script_(script) {}

  void run() {
    for (int steps = 0; steps < 64 && !script_.has_ended(); ++steps) step();
    // Whatever they did, who has the key is let in.
    const Joined joined = join(rendezvous_->address(), kMetKey, 7, {}, within(kTestLimit));
    reset_at_close(joined.socket.get());
    guests_.clear();
    rendezvous_.reset();
    FERRY_CHECK(num_admitted_ >= 1 && num_admitted_ <= num_true_ + 1);
    FERRY_CHECK(num_joined_ >= 1 && num_joined_ <= num_admitted_);
  }

 private:
  void step() {
    const std::size_t what = script_.number() % 7;
    if (guests_.empty() || (what == 0 && guests_.size() < 8)) {
      guests_.push_back(std::make_unique<StrangeGuest>(rendezvous_->address()));
      return;
    }
    const std::size_t at = script_.number() % guests_.size();
    StrangeGuest& guest = *guests_[at];
    switch (what) {
      case 1: return guest.say_raw(script_.bytes(script_.number()));
      case 2: return say_hello(guest);
      case 3: return guest.say_rest();
      case 4: return guest.hear_some();
      case 5: return guest.hang_up();
      default: guests_.erase(guests_.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }

  void say_hello(StrangeGuest& guest) {
    const bool has_key = script_.number() % 2 == 0;
    const std::size_t num_said = script_.number() * 2;
    const Input introduction = script_.bytes(script_.number());
    if (has_key) ++num_true_;
    try {
      guest.say_hello(has_key ? kMetKey : kNobodysKey, introduction, num_said);
    } catch (const Error&) {  // it had heard some of the challenge before
    }
  }

  Rendezvous::Place admit(const Newcomer& newcomer) {
    FERRY_CHECK_LE(newcomer.introduction.size(), kMaxJoinBytes);
    if (newcomer.introduction.size() % 3 == 1) throw_invalid("an introduction that nobody likes");
    return {.member = Rank{++num_admitted_}, .epoch = 1, .instructions = newcomer.introduction};
  }
  void welcome(FileDescriptor socket) {
    reset_at_close(socket.get());
    ++num_joined_;
  }

  Script script_;
  int num_true_ = 0;
  std::atomic<int> num_admitted_ = 0, num_joined_ = 0;
  std::unique_ptr<Rendezvous> rendezvous_ = std::make_unique<Rendezvous>(
      "127.0.0.1:0", kMetKey, [this](const Newcomer& newcomer) { return admit(newcomer); },
      [this](const Rendezvous::Place&, FileDescriptor socket) { welcome(std::move(socket)); });
  std::vector<std::unique_ptr<StrangeGuest>> guests_;
};

/// Lets one newcomer come and says what the script has: a challenge, its own or one by the rules, and an answer to the hello.
void play_coordinator(const FileDescriptor& listener, Script script) {
  pollfd polled{.fd = listener.get(), .events = POLLIN, .revents = 0};
  if (poll(&polled, 1, 1000) <= 0) return;
  const FileDescriptor newcomer(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (newcomer.get() < 0) return;
  reset_at_close(newcomer.get());
  const bool keeps_rules = script.number() % 2 == 0;
  const Input raw = script.bytes(keeps_rules ? 0 : script.number());
  say(newcomer.get(),
      keeps_rules ? encode_challenge(make_nonce()) : MetBytes(std::as_bytes(raw).begin(), std::as_bytes(raw).end()));
  if (keeps_rules) {
    MetBytes hello(kHelloHeadBytes + 3);
    hear(newcomer.get(), hello);
  }
  say(newcomer.get(), std::as_bytes(script.bytes(8192)));
}

}  // namespace

void attack_rendezvous(Input input) { RendezvousUnderAttack(Script(input)).run(); }

/// No bytes make a newcomer believe somebody who has not the key: it is refused, or gives up in time.
void attack_newcomer(Input input) {
  const Listeners place = open_listeners("fuzz", "127.0.0.1:0");
  std::thread coordinator([&] { play_coordinator(place.sockets.front(), Script(input)); });
  bool has_joined = false;
  try {
    const MetBytes introduction(3);
    const Joined joined = join(place.address, kMetKey, 1, introduction, within(milliseconds(40)));
    has_joined = true;
  } catch (const Error& error) {
    FERRY_CHECK(error.code() == ErrorCode::kFailedPrecondition || error.code() == ErrorCode::kDeadlineExceeded)
        << " " << error.what();
  }
  coordinator.join();
  FERRY_CHECK(!has_joined);
}

}  // namespace ferry::fuzz

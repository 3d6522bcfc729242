#include "comm/rendezvous/rendezvous.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <list>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "comm/poll_tools.h"
#include "comm/rendezvous/join_wire.h"
#include "comm/rendezvous/local_place.h"
#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/net/listeners.h"

namespace ferry {
namespace {

constexpr std::chrono::milliseconds kAcceptPause{50};
constexpr int kMaxAtOnce = 16;  // newcomers that are let in before those who are there are looked after

Listeners open_place(const std::string& address) {
  const std::optional<std::string> local = local_place_of(address);
  if (!local) return open_listeners("workers", address);
  Listeners listeners{.sockets = {}, .address = address};
  listeners.sockets.push_back(listen_at_local_place(*local));
  return listeners;
}

/// Whether no other host can reach it.
bool is_of_this_host(const FileDescriptor& listener) {
  sockaddr_storage place{};
  socklen_t size = sizeof(place);
  FERRY_CHECK_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&place), &size), 0);
  if (place.ss_family == AF_UNIX) return true;
  if (place.ss_family == AF_INET)
    return (ntohl(reinterpret_cast<const sockaddr_in&>(place).sin_addr.s_addr) >> 24U) == IN_LOOPBACKNET;
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(place).sin6_addr) != 0;
}

/// Tells one host from another: an IPv4 address, or the network half of an IPv6 one. All that come by a name are of this host.
uint64_t source_of(const sockaddr_storage& peer) {
  uint64_t source = 0;
  if (peer.ss_family == AF_INET) source = reinterpret_cast<const sockaddr_in&>(peer).sin_addr.s_addr;
  if (peer.ss_family == AF_INET6) {
    const in6_addr& address = reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr;
    constexpr std::size_t kMappedAt = 12;  // of IPv4 in IPv6
    if (IN6_IS_ADDR_V4MAPPED(&address)) {
      std::memcpy(&source, address.s6_addr + kMappedAt, sizeof(uint32_t));
    } else {
      std::memcpy(&source, address.s6_addr, sizeof(source));
    }
  }
  return source;
}

/// A newcomer until it is admitted or sent away. What it says and is told is moved as far as it goes without waiting.
class Guest {
 public:
  Guest(FileDescriptor socket, uint64_t come_from, const RendezvousPatience& patience)
      : source(come_from),
        grace(std::chrono::steady_clock::now() + patience.grace),
        socket_(std::move(socket)),
        nonce_(make_nonce()),
        outgoing_(encode_challenge(nonce_)),
        deadline_(std::chrono::steady_clock::now() + patience.proof) {}

  const uint64_t source;  // where it has come from
  const Deadline grace;   // until which it need not give way

  Deadline deadline() const { return deadline_; }
  /// Whether it has said all that is asked of it, and it was right; then it need not give way.
  bool has_proved() const { return place.has_value(); }

  int socket() const { return socket_.get(); }
  bool has_to_write() const { return num_sent_ < outgoing_.size(); }
  bool was_answered() const { return was_answered_ && !has_to_write(); }
  bool is_gone() const { return is_gone_; }
  const JoinNonce& nonce() const { return nonce_; }
  FileDescriptor take_socket() { return std::move(socket_); }

  void write_some() {
    while (has_to_write() && !is_gone_) {
      const ssize_t sent =
          send(socket_.get(), outgoing_.data() + num_sent_, outgoing_.size() - num_sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && errno == EAGAIN) return;
      is_gone_ = sent < 0;
      if (sent > 0) num_sent_ += static_cast<std::size_t>(sent);
    }
  }

  /// The whole hello, once it is there; not a byte beyond it is read. Throws Error{kFailedPrecondition} for what is none.
  std::optional<std::span<const std::byte>> read_hello() {
    while (!is_gone_) {
      std::size_t wanted = kHelloHeadBytes;
      if (incoming_.size() >= kHelloHeadBytes) wanted += hello_rest(std::span(incoming_).first(kHelloHeadBytes));
      if (incoming_.size() == wanted) return incoming_;
      const std::size_t before = incoming_.size();
      incoming_.resize(wanted);
      const ssize_t bytes = recv(socket_.get(), incoming_.data() + before, wanted - before, MSG_DONTWAIT);
      incoming_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)));
      if (bytes < 0 && errno == EINTR) continue;
      if (bytes < 0 && errno == EAGAIN) return {};
      is_gone_ = bytes <= 0;
    }
    return {};
  }

  /// By then the challenge has left. It has `time` to take the answer.
  void answer(std::vector<std::byte> bytes, std::chrono::milliseconds time) {
    outgoing_ = std::move(bytes);
    num_sent_ = 0;
    was_answered_ = true;
    deadline_ = std::chrono::steady_clock::now() + time;
    write_some();
  }

  std::optional<Rendezvous::Place> place;  // once it is admitted

 private:
  FileDescriptor socket_;
  const JoinNonce nonce_;
  std::vector<std::byte> outgoing_, incoming_;
  std::size_t num_sent_ = 0;
  Deadline deadline_;
  bool was_answered_ = false;
  bool is_gone_ = false;
};

}  // namespace

class Rendezvous::Desk {
 public:
  Desk(Listeners listeners, std::string key, Admit admit, OnJoined on_joined, const RendezvousPatience& patience)
      : listeners_(std::move(listeners)),
        key_(std::move(key)),
        admit_(std::move(admit)),
        on_joined_(std::move(on_joined)),
        patience_(patience),
        thread_([this] { run(); }) {}
  ~Desk() {
    is_closing_ = true;
    bell_.ring();
    thread_.join();
  }

  const std::string& address() const { return listeners_.address; }

 private:
  using Guests = std::list<Guest>;

  void run() {
    while (!is_closing_) {
      std::vector<pollfd> polled{{.fd = bell_.fd(), .events = POLLIN, .revents = 0}};
      for (const Guest& guest : guests_)
        polled.push_back({.fd = guest.socket(), .events = guest.has_to_write() ? short{POLLOUT} : short{POLLIN}, .revents = 0});
      const Deadline next_place = when_there_is_a_place();
      const bool has_place = next_place <= std::chrono::steady_clock::now();
      if (has_place) {
        for (const FileDescriptor& listener : listeners_.sockets)
          polled.push_back({.fd = listener.get(), .events = POLLIN, .revents = 0});
      }
      poll_until(polled, next_deadline(has_place ? Deadline::max() : next_place));
      std::size_t i = 1;
      for (Guest& guest : guests_) {
        if (polled[i++].revents != 0) attend(guest);
      }
      see_off();
      for (; i < polled.size(); ++i) {
        if (polled[i].revents != 0) let_in(polled[i].fd);
      }
    }
  }

  /// Of a guest, or `other`.
  Deadline next_deadline(Deadline other) const {
    Deadline next = other;
    for (const Guest& guest : guests_) next = std::min(next, guest.deadline());
    return next;
  }

  Deadline when_there_is_a_place() {
    if (guests_.size() < kMaxNewcomers) return {};
    const auto next = next_to_give_way();
    return next == guests_.end() ? Deadline::max() : next->grace;
  }

  /// The oldest of those from where most have come, of who has proved nothing.
  Guests::iterator next_to_give_way() {
    std::map<uint64_t, int> num_from;
    for (const Guest& guest : guests_) num_from[guest.source] += guest.has_proved() ? 0 : 1;
    auto next = guests_.end();
    for (auto guest = guests_.begin(); guest != guests_.end(); ++guest) {  // in the order in which they came
      if (guest->has_proved()) continue;
      if (next == guests_.end() || num_from[guest->source] > num_from[next->source]) next = guest;
    }
    return next;
  }

  /// All who have come, as long as there are places, but no more of them than others can wait for.
  void let_in(int listener) {
    for (int most = kMaxAtOnce; most > 0; --most) {
      if (when_there_is_a_place() > std::chrono::steady_clock::now()) return;
      sockaddr_storage peer{};
      socklen_t size = sizeof(peer);
      FileDescriptor socket(accept4(listener, reinterpret_cast<sockaddr*>(&peer), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (socket.get() < 0) {
        // It has gone again, or there are no descriptors left, which passes.
        if (errno != EAGAIN && errno != ECONNABORTED) std::this_thread::sleep_for(kAcceptPause);
        return;
      }
      if (guests_.size() >= kMaxNewcomers) {
        const auto leaving = next_to_give_way();
        shutdown(leaving->socket(), SHUT_RDWR);
        guests_.erase(leaving);
      }
      guests_.emplace_back(std::move(socket), source_of(peer), patience_).write_some();
    }
  }

  void attend(Guest& guest) {
    guest.write_some();
    if (guest.was_answered() || guest.has_to_write()) return;
    JoinNonce hello_nonce{};
    try {
      const auto bytes = guest.read_hello();
      if (!bytes) return;
      JoinHello hello = decode_hello(*bytes, guest.nonce(), key_);
      hello_nonce = hello.nonce;
      Place place = admit_({.incarnation = hello.incarnation, .introduction = std::move(hello.introduction)});
      FERRY_CHECK_LE(place.instructions.size(), kMaxJoinBytes);
      guest.answer(
          encode_answer({.member = place.member, .epoch = place.epoch, .bytes = place.instructions}, hello_nonce, key_),
          patience_.join);
      guest.place = std::move(place);
    } catch (const std::exception& error) {
      const std::string reason = error.what();
      const auto* text = reinterpret_cast<const std::byte*>(reason.data());
      guest.answer(encode_answer({.is_refused = true, .bytes = {text, text + reason.size()}}, hello_nonce, key_),
                   patience_.join);
    }
  }

  /// Hands over who knows its place, and lets go who was refused, went away or took too long.
  void see_off() {
    const auto now = std::chrono::steady_clock::now();
    for (auto guest = guests_.begin(); guest != guests_.end();) {
      if (!guest->was_answered() && !guest->is_gone() && now < guest->deadline()) {
        ++guest;
        continue;
      }
      if (!guest->was_answered()) shutdown(guest->socket(), SHUT_RDWR);  // it does not know its place, or has none
      if (guest->place) on_joined_(*guest->place, guest->take_socket());
      guest = guests_.erase(guest);
    }
  }

  const Listeners listeners_;
  const std::string key_;
  const Admit admit_;
  const OnJoined on_joined_;
  const RendezvousPatience patience_;
  const Bell bell_;
  std::atomic<bool> is_closing_{false};
  Guests guests_;       // of the thread, in the order in which they came
  std::thread thread_;  // last: it uses all of the above
};

namespace {

/// Without a key only this host may reach it.
Listeners open_guarded_place(const std::string& address, const std::string& key) {
  Listeners listeners = open_place(address);
  if (key.empty() && !std::ranges::all_of(listeners.sockets, is_of_this_host)) {
    throw_invalid("workers would join on " + address +
                  ", which other hosts can reach, without a key; allowed: a key, or an address such as 127.0.0.1");
  }
  return listeners;
}

}  // namespace

Rendezvous::Rendezvous(const std::string& address, std::string key, Admit admit, OnJoined on_joined,
                       RendezvousPatience patience) {
  Listeners listeners = open_guarded_place(address, key);
  desk_ = std::make_unique<Desk>(std::move(listeners), std::move(key), std::move(admit), std::move(on_joined), patience);
}

Rendezvous::~Rendezvous() = default;

void Rendezvous::check(const std::string& address, const std::string& key) { open_guarded_place(address, key); }

const std::string& Rendezvous::address() const { return desk_->address(); }

}  // namespace ferry

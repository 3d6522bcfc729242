#include "comm/rendezvous/join.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

#include "comm/poll_tools.h"
#include "comm/rendezvous/join_wire.h"
#include "comm/rendezvous/local_place.h"
#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/net/host_port.h"

namespace ferry {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{50}, kLongestPause{1000};  // between tries; each twice the one before
constexpr milliseconds kSlice{100};                           // after which it looks whether it is still wanted

/// A try that failed in a way that may be over soon.
struct JoinTryFailed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

[[noreturn]] void give_up_try(const std::string& what) { throw JoinTryFailed(what); }

/// For how long something is waited for.
struct Patience {
  Deadline deadline;
  std::stop_token stop;

  bool is_over() const { return stop.stop_requested() || std::chrono::steady_clock::now() >= deadline; }
  /// When to look at that again.
  Deadline next_look() const { return std::min<Deadline>(deadline, std::chrono::steady_clock::now() + kSlice); }
};

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

AddressList addresses_of(const HostPort& place) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(without_brackets(place.host).c_str(), std::to_string(place.port).c_str(), &hints, &list);
  if (error != 0) give_up_try(std::string("the host is not found: ") + gai_strerror(error));
  return {list, freeaddrinfo};
}

/// Waits until the socket can do what `event` says.
void await_event(int socket, short event, const Patience& patience) {
  pollfd polled{.fd = socket, .events = event, .revents = 0};
  while (poll_until({&polled, 1}, patience.next_look()) <= 0) {
    if (patience.is_over()) give_up_try("no answer in time");
  }
}

FileDescriptor connect_to(const addrinfo& address, const Patience& patience) {
  FileDescriptor made(socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (made.get() < 0) give_up_try(std::strerror(errno));
  if (connect(made.get(), address.ai_addr, address.ai_addrlen) == 0) return made;
  if (errno != EINPROGRESS) give_up_try(std::strerror(errno));
  await_event(made.get(), POLLOUT, patience);
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(made.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) give_up_try(std::strerror(error));
  return made;
}

/// Where others are to be met.
struct MeetingPlace {
  std::optional<std::string> local;  // its name
  HostPort host;                     // or where else it is
};

MeetingPlace meeting_place_of(const std::string& address) {
  MeetingPlace place{.local = local_place_of(address), .host = {}};
  if (!place.local) place.host = parse_host_port("join", address);
  return place;
}

FileDescriptor connect_to(const MeetingPlace& meeting, const Patience& patience) {
  if (meeting.local) {
    FileDescriptor made = connect_to_local_place(*meeting.local);
    if (made.get() < 0) give_up_try(std::strerror(errno));
    return made;
  }
  const HostPort& place = meeting.host;
  const AddressList addresses = addresses_of(place);
  std::string failure = "the host has no address";
  for (const addrinfo* next = addresses.get(); next != nullptr; next = next->ai_next) {
    try {
      return connect_to(*next, patience);
    } catch (const JoinTryFailed& error) {
      failure = error.what();
    }
  }
  give_up_try(failure);
}

/// Reads until `bytes` is full, of which the first `num_read` are there.
void read_to_end(int socket, std::vector<std::byte>& bytes, std::size_t num_read, const Patience& patience) {
  while (num_read < bytes.size()) {
    await_event(socket, POLLIN, patience);
    const ssize_t got = recv(socket, bytes.data() + num_read, bytes.size() - num_read, MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) give_up_try(got == 0 ? "the connection was closed" : std::strerror(errno));
    num_read += static_cast<std::size_t>(got);
  }
}

void write_all(int socket, std::span<const std::byte> bytes, const Patience& patience) {
  while (!bytes.empty()) {
    await_event(socket, POLLOUT, patience);
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (sent < 0) give_up_try(std::strerror(errno));
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
}

Joined join_once(const MeetingPlace& place, const std::string& key, JoinHello hello, const Patience& patience) {
  FileDescriptor socket = connect_to(place, patience);
  std::vector<std::byte> bytes(kChallengeBytes);
  read_to_end(socket.get(), bytes, 0, patience);
  const JoinNonce challenge = decode_challenge(bytes);
  hello.nonce = make_nonce();
  write_all(socket.get(), encode_hello(hello, challenge, key), patience);
  bytes.assign(kAnswerHeadBytes, std::byte{});
  read_to_end(socket.get(), bytes, 0, patience);
  bytes.resize(kAnswerHeadBytes + answer_rest(bytes));
  read_to_end(socket.get(), bytes, kAnswerHeadBytes, patience);
  JoinAnswer answer = decode_answer(bytes, hello.nonce, key);
  if (answer.is_refused) {
    throw Error(ErrorCode::kFailedPrecondition,
                "refused: " + std::string(reinterpret_cast<const char*>(answer.bytes.data()), answer.bytes.size()));
  }
  return {.member = answer.member, .epoch = answer.epoch, .instructions = std::move(answer.bytes), .socket = std::move(socket)};
}

}  // namespace

Joined join(const std::string& address, const std::string& key, uint64_t incarnation, std::span<const std::byte> introduction,
            Deadline deadline, const std::stop_token& stop, milliseconds try_time) {
  FERRY_CHECK_LE(introduction.size(), kMaxJoinBytes);
  const MeetingPlace place = meeting_place_of(address);
  const JoinHello hello{.incarnation = incarnation, .nonce = {}, .introduction = {introduction.begin(), introduction.end()}};
  milliseconds pause = kFirstPause;
  while (true) {
    std::string failure;
    try {
      return join_once(place, key, hello, {std::min(deadline, std::chrono::steady_clock::now() + try_time), stop});
    } catch (const JoinTryFailed& error) {
      failure = error.what();
    } catch (const Error& error) {
      throw Error(error.code(), "cannot join " + address + ": " + error.what());
    }
    const Patience pausing{std::chrono::steady_clock::now() + pause, stop};
    if (pausing.deadline >= deadline) throw Error(ErrorCode::kDeadlineExceeded, "cannot join " + address + ": " + failure);
    while (!pausing.is_over()) std::this_thread::sleep_until(pausing.next_look());
    if (stop.stop_requested()) throw Error(ErrorCode::kCancelled, "cannot join " + address + ": it is not to, any more");
    pause = std::min(2 * pause, kLongestPause);
  }
}

}  // namespace ferry

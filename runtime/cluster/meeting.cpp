#include "runtime/cluster/meeting.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "comm/net_address.h"
#include "comm/rendezvous/join.h"
#include "comm/rendezvous/rendezvous.h"
#include "runtime/base/error.h"
#include "runtime/base/random_id.h"

namespace ferry {
namespace {

/// Where to meet, as the host tells it. An empty address: it cannot be met.
struct Invitation {
  std::array<char, 128> address{};
  std::array<char, 64> key{};
};

template <std::size_t kSize>
void write_text(const std::string& text, std::array<char, kSize>& to) {
  text.copy(to.data(), kSize - 1);
}

/// Guests that have come so far.
class Arrivals {
 public:
  explicit Arrivals(std::span<const Rank> guests) : guests_(guests.begin(), guests.end()), sockets_(guests.size()) {}

  Rendezvous::Place admit(const Newcomer& newcomer) {
    int32_t rank = -1;
    if (newcomer.introduction.size() == sizeof rank) std::memcpy(&rank, newcomer.introduction.data(), sizeof rank);
    const auto found = std::ranges::find(guests_, Rank{rank});
    const std::scoped_lock lock(mutex_);
    if (found == guests_.end() || sockets_[static_cast<std::size_t>(found - guests_.begin())])
      throw Error(ErrorCode::kFailedPrecondition, "rank " + std::to_string(rank) + " is not awaited");
    return {.member = *found, .epoch = 0, .instructions = {}};
  }
  void arrive(Rank rank, FileDescriptor socket) {
    const std::scoped_lock lock(mutex_);
    sockets_[static_cast<std::size_t>(std::ranges::find(guests_, rank) - guests_.begin())].emplace(std::move(socket));
    changed_.notify_all();
  }
  /// All of them, in the order of guests.
  std::vector<FileDescriptor> await(Rank host, Deadline deadline) {
    std::unique_lock lock(mutex_);
    const auto missing = [&] { return std::ranges::find_if(sockets_, [](const auto& socket) { return !socket; }); };
    if (!changed_.wait_until(lock, deadline, [&] { return missing() == sockets_.end(); })) {
      const Rank absent = guests_[static_cast<std::size_t>(missing() - sockets_.begin())];
      throw Error(ErrorCode::kDeadlineExceeded,
                  "rank " + std::to_string(absent.value) + " did not connect to rank " + std::to_string(host.value));
    }
    std::vector<FileDescriptor> sockets;
    for (auto& socket : sockets_) sockets.push_back(std::move(*socket));
    return sockets;
  }

 private:
  const std::vector<Rank> guests_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::optional<FileDescriptor>> sockets_;  // by guest
};

std::vector<FileDescriptor> receive_guests(Group& bootstrap, Rank host, std::span<const Rank> guests, const MeetingPlace& place,
                                           Deadline deadline) {
  Arrivals arrivals(guests);
  Invitation invitation;
  std::optional<Rendezvous> rendezvous;
  std::optional<Error> complaint;
  try {
    const std::string key = random_id() + random_id().substr(0, 16);
    const std::string address =
        place.is_one_host && place.net_interface.empty() ? "unix:ferry-" + random_id() : place.host() + ":0";
    rendezvous.emplace(
        address, key, [&](const Newcomer& newcomer) { return arrivals.admit(newcomer); },
        [&](const Rendezvous::Place& seat, FileDescriptor socket) { arrivals.arrive(seat.member, std::move(socket)); });
    write_text(rendezvous->address(), invitation.address);
    write_text(key, invitation.key);
  } catch (const Error& error) {  // the others must not wait for it
    complaint = error;
  }
  bootstrap.broadcast(std::as_writable_bytes(std::span(&invitation, 1)), host, deadline);
  if (complaint) throw Error(*complaint);
  return arrivals.await(host, deadline);
}

}  // namespace

std::string MeetingPlace::host() const {
  const std::string address = choose_net_address(net_interface, is_one_host);
  return address.find(':') == std::string::npos || address.starts_with('[') ? address : "[" + address + "]";
}

std::vector<FileDescriptor> meet(Group& bootstrap, Rank host, std::span<const Rank> guests, const MeetingPlace& place,
                                 Deadline deadline) {
  if (bootstrap.rank() == host) return receive_guests(bootstrap, host, guests, place, deadline);
  Invitation invitation;
  bootstrap.broadcast(std::as_writable_bytes(std::span(&invitation, 1)), host, deadline);
  std::vector<FileDescriptor> sockets;
  if (std::ranges::count(guests, bootstrap.rank()) == 0) return sockets;
  if (invitation.address[0] == '\0')
    throw Error(ErrorCode::kUnavailable, "rank " + std::to_string(host.value) + " could not be met; its own error says why");
  const int32_t rank = bootstrap.rank().value;
  sockets.push_back(
      join(invitation.address.data(), invitation.key.data(), /*incarnation=*/1, std::as_bytes(std::span(&rank, 1)), deadline)
          .socket);
  return sockets;
}

}  // namespace ferry

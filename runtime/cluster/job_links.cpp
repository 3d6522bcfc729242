#include "runtime/cluster/job_links.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <utility>

#include "comm/net_address.h"
#include "comm/rendezvous/join.h"
#include "comm/rendezvous/rendezvous.h"
#include "runtime/base/error.h"
#include "runtime/base/random_id.h"

namespace ferry {
namespace {

/// Where to meet, as rank 0 tells it. An empty address: it cannot be met.
struct Invitation {
  std::array<char, 128> address{};
  std::array<char, 64> key{};
};

template <std::size_t kSize>
void write_text(const std::string& text, std::array<char, kSize>& to) {
  text.copy(to.data(), kSize - 1);
}

std::string in_brackets(const std::string& host) {
  return host.find(':') == std::string::npos || host.starts_with('[') ? host : "[" + host + "]";
}

/// Ranks that have come so far.
class Arrivals {
 public:
  explicit Arrivals(int size) : sockets_(static_cast<std::size_t>(size)) {}

  Rendezvous::Place admit(const Newcomer& newcomer) {
    int32_t rank = -1;
    if (newcomer.introduction.size() == sizeof rank) std::memcpy(&rank, newcomer.introduction.data(), sizeof rank);
    const std::scoped_lock lock(mutex_);
    if (rank < 1 || rank >= std::ssize(sockets_) || sockets_[static_cast<std::size_t>(rank)])
      throw Error(ErrorCode::kFailedPrecondition, "rank " + std::to_string(rank) + " is not awaited");
    return {.member = Rank{rank}, .epoch = 0, .instructions = {}};
  }
  void arrive(Rank rank, FileDescriptor socket) {
    const std::scoped_lock lock(mutex_);
    sockets_[static_cast<std::size_t>(rank.value)].emplace(std::move(socket));
    changed_.notify_all();
  }
  /// All of them, in the order of ranks from 1 on.
  std::vector<FileDescriptor> await(Deadline deadline) {
    std::unique_lock lock(mutex_);
    const auto missing = [&] {
      return std::find_if(sockets_.begin() + 1, sockets_.end(), [](const auto& socket) { return !socket; });
    };
    if (!changed_.wait_until(lock, deadline, [&] { return missing() == sockets_.end(); })) {
      throw Error(ErrorCode::kDeadlineExceeded,
                  "rank " + std::to_string(missing() - sockets_.begin()) + " did not connect to rank 0");
    }
    std::vector<FileDescriptor> sockets;
    for (auto socket = sockets_.begin() + 1; socket != sockets_.end(); ++socket) sockets.push_back(std::move(**socket));
    return sockets;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::optional<FileDescriptor>> sockets_;  // [size], rank 0's unused
};

}  // namespace

JobLinks::JobLinks(Group& bootstrap, const std::string& net_interface, OnLinkEnd on_end, Deadline deadline)
    : hub_(std::make_unique<StreamHub>(std::move(on_end))), links_(static_cast<std::size_t>(bootstrap.size())) {
  if (bootstrap.rank() == Rank{0}) {
    host(bootstrap, net_interface, deadline);
  } else {
    visit(bootstrap, deadline);
  }
}

void JobLinks::host(Group& bootstrap, const std::string& net_interface, Deadline deadline) {
  const bool is_one_host = all_share_a_host(bootstrap, deadline);
  Arrivals arrivals(bootstrap.size());
  Invitation invitation;
  std::optional<Rendezvous> rendezvous;
  std::optional<Error> complaint;
  try {
    const std::string key = random_id() + random_id().substr(0, 16);
    const std::string address = is_one_host && net_interface.empty()
                                    ? "unix:ferry-" + random_id()
                                    : in_brackets(choose_net_address(net_interface, is_one_host)) + ":0";
    rendezvous.emplace(
        address, key, [&](const Newcomer& newcomer) { return arrivals.admit(newcomer); },
        [&](const Rendezvous::Place& place, FileDescriptor socket) { arrivals.arrive(place.member, std::move(socket)); });
    write_text(rendezvous->address(), invitation.address);
    write_text(key, invitation.key);
  } catch (const Error& error) {  // the others must not wait for it
    complaint = error;
  }
  bootstrap.broadcast(std::as_writable_bytes(std::span(&invitation, 1)), Rank{0}, deadline);
  if (complaint) throw Error(*complaint);
  std::vector<FileDescriptor> sockets = arrivals.await(deadline);
  for (std::size_t i = 0; i < sockets.size(); ++i) {
    const Rank rank{static_cast<int32_t>(i) + 1};
    links_[i + 1] = hub_->adopt(std::move(sockets[i]), rank);
  }
}

void JobLinks::visit(Group& bootstrap, Deadline deadline) {
  all_share_a_host(bootstrap, deadline);
  Invitation invitation;
  bootstrap.broadcast(std::as_writable_bytes(std::span(&invitation, 1)), Rank{0}, deadline);
  if (invitation.address[0] == '\0') throw Error(ErrorCode::kUnavailable, "rank 0 could not be met; its own error says why");
  const int32_t rank = bootstrap.rank().value;
  Joined joined =
      join(invitation.address.data(), invitation.key.data(), /*incarnation=*/1, std::as_bytes(std::span(&rank, 1)), deadline);
  links_[0] = hub_->adopt(std::move(joined.socket), Rank{0});
}

}  // namespace ferry

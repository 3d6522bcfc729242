#include "runtime/cluster/coordinator_links.h"

#include <array>
#include <chrono>
#include <span>
#include <utility>

#include "runtime/base/error.h"

namespace ferry {
namespace {

constexpr int kPortsTag = 0, kLeaveTag = 1;
constexpr std::chrono::seconds kSayTimeout{1};

/// Ports as they travel, each ended by a zero.
struct PortsMessage {
  std::array<char, CoordinatorLinks::kMaxAddress + 1> http{};
  std::array<char, CoordinatorLinks::kMaxAddress + 1> grpc{};
};

template <std::size_t kSize>
void write_address(const std::string& address, std::array<char, kSize>& to) {
  if (address.size() >= kSize)
    throw_invalid("the address " + address + " has " + std::to_string(address.size()) + " characters; allowed: up to " +
                  std::to_string(kSize - 1));
  address.copy(to.data(), kSize - 1);
}

}  // namespace

CoordinatorLinks::CoordinatorLinks(Group& bootstrap, const JobShape& shape, const MeetingPlace& place, Deadline deadline)
    : index_(bootstrap.rank().value), count_(shape.num_coordinators), host_(place.is_one_host ? "" : place.host()) {
  std::vector<Rank> others;
  for (int32_t c = 1; c < count_; ++c) others.push_back(Rank{c});
  std::vector<FileDescriptor> sockets = meet(bootstrap, Rank{0}, others, place, deadline);
  for (std::size_t i = 0; i < sockets.size(); ++i)
    links_.push_back(hub_.adopt(std::move(sockets[i]), is_first() ? others[i] : Rank{0}));
  if (!is_first() && !links_.empty()) leave_ = links_.front()->irecv({&word_, 1}, kLeaveTag, Fit::kExact);
}

std::vector<CoordinatorLinks::Ports> CoordinatorLinks::gather(const Ports& own, Deadline deadline) {
  PortsMessage message;
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(&message, 1));
  if (!is_first()) {
    write_address(own.http, message.http);
    write_address(own.grpc, message.grpc);
    const std::unique_ptr<PendingOp> send = links_.front()->isend(bytes, kPortsTag);
    links_.front()->wait(*send, deadline);
    return {};
  }
  std::vector<Ports> ports{own};
  for (const auto& link : links_) {
    const std::unique_ptr<PendingOp> receive = link->irecv(bytes, kPortsTag, Fit::kExact);
    link->wait(*receive, deadline);
    message.http.back() = message.grpc.back() = '\0';
    ports.push_back({.http = message.http.data(), .grpc = message.grpc.data()});
  }
  return ports;
}

void CoordinatorLinks::tell_to_leave() {
  for (const auto& link : links_) {
    try {
      const std::unique_ptr<PendingOp> send = link->isend({&word_, 1}, kLeaveTag);
      link->wait(*send, hub_.now() + kSayTimeout);
    } catch (const Error&) {  // it has gone already
    }
  }
}

bool CoordinatorLinks::is_told_to_leave() {
  if (!leave_) return false;
  PendingOp* const op = leave_.get();
  try {
    hub_.wait_any({&op, 1}, hub_.now());
    return true;  // the word, or the end of the link
  } catch (const Error&) {
    return false;
  }
}

}  // namespace ferry

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/file_descriptor.h"
#include "runtime/base/types.h"

namespace ferry {

/// Somebody who wants to join and has proved the key.
struct Newcomer {
  uint64_t incarnation = 0;
  std::vector<std::byte> introduction;
};

/// How long a Rendezvous bears with a newcomer.
struct RendezvousPatience {
  std::chrono::milliseconds proof{1000};  // in which it is to prove the key
  std::chrono::milliseconds join{5000};   // from then on, to hear where its place is
  std::chrono::milliseconds grace{50};    // for which it need not give way to others
};

/// Where newcomers are met, on a port and a thread of its own. Each is asked for the key, then the owner decides. A newcomer
/// that is slow, silent or speaks nonsense keeps nobody else waiting: the patience with it has an end. When there are
/// kMaxNewcomers, one that has proved nothing within its grace gives way to the next who comes: the oldest of those from the
/// address (of IPv6 the first 64 bits) from which most have come, so that many from one address are in the way of each other
/// and of nobody else.
class Rendezvous {
 public:
  static constexpr int kMaxNewcomers = 256;  // at once; others wait to be let in

  struct Place {
    Rank member;
    uint32_t epoch = 0;
    std::vector<std::byte> instructions;  // at most kMaxJoinBytes
  };
  /// Decides; an Error is the reason of a refusal, which the newcomer gets to read. Both are called on the thread of the
  /// Rendezvous, one at a time, and must not destroy it.
  using Admit = std::function<Place(const Newcomer&)>;
  /// Once for each that was admitted, when it knows, with its socket; also if it has gone meanwhile: then the socket is at its
  /// end.
  using OnJoined = std::function<void(const Place&, FileDescriptor socket)>;

  /// Listens on `address`, HOST:PORT or unix:NAME (local_place.h). Throws Error{kInvalidArgument} for one that is none, or that
  /// others can reach while there is no key; {kFailedPrecondition} if it cannot be listened on.
  Rendezvous(const std::string& address, std::string key, Admit admit, OnJoined on_joined, RendezvousPatience patience = {});
  /// Newcomers that were not admitted yet are dropped.
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  /// Throws what the constructor would, and keeps nothing: to find out before something that takes long.
  static void check(const std::string& address, const std::string& key);

  /// As it was given, with the port that is really used.
  const std::string& address() const;

 private:
  class Desk;
  std::unique_ptr<Desk> desk_;
};

}  // namespace ferry

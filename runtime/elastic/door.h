#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/link.h"
#include "runtime/base/worker_home.h"
#include "runtime/cluster/handshake.h"

namespace ferry {

/// What a worker says of itself before it joins: the program that it is, and what its checkpoint is (checkpoint_fingerprint).
std::vector<Term> introduction_terms(const std::string& fingerprint);

/// Who may come, and what they hear.
struct DoorRules {
  std::vector<Term> introduction;  // what those who come must have in common with this rank
  std::vector<Term> instructions;  // what they are told to work by
  std::vector<bool> taken;         // [a job's ranks] whose seats are not free
};

/// The seats of a job that runs. One thread at a time.
class DoorSeats {
 public:
  explicit DoorSeats(std::vector<bool> taken) : taken_(std::move(taken)) {}

  /// Takes the first that is free. Throws Error{kFailedPrecondition} if there is none.
  Rank take();
  void free(Rank seat) { taken_.at(static_cast<std::size_t>(seat.value)) = false; }

 private:
  std::vector<bool> taken_;  // by rank
};

/// Where workers come while a job runs: over sockets (SocketDoor), or in a cluster that is simulated.
class Door {
 public:
  struct Guest {
    Rank rank;
    std::unique_ptr<Link> link;
    WorkerHome home{};
  };
  virtual ~Door() = default;

  /// As it was given, with the port that is really used.
  virtual const std::string& address() const = 0;

  /// Who has come since the last call. Quick if nobody has.
  virtual std::vector<Guest> take() = 0;
  /// The seat of a rank that has gone may be taken again.
  virtual void free_seat(Rank rank) = 0;
};

}  // namespace ferry

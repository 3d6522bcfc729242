#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/rendezvous/rendezvous.h"
#include "runtime/cluster/handshake.h"
#include "runtime/options/elastic_options.h"

namespace ferry {

/// What a worker says of itself before it joins: the program that it is, and what its checkpoint is (checkpoint_fingerprint).
std::vector<Term> introduction_terms(const std::string& fingerprint);

/// Where workers come while a job runs. Any thread may call it.
class Door {
 public:
  struct Guest {
    Rank rank;
    FileDescriptor socket;
  };
  /// `introduction`: what those who come must have in common with this rank; `instructions`: what they are told to work by;
  /// `taken` [a job's ranks]: whose seats are not free. Throws Error for an address that cannot be listened on, or a key file
  /// that cannot be read.
  Door(const ElasticOptions& options, std::vector<Term> introduction, const std::vector<Term>& instructions,
       std::vector<bool> taken);

  /// As it was given, with the port that is really used.
  const std::string& address() const { return rendezvous_->address(); }

  /// Who has come since the last call. Quick if nobody has.
  std::vector<Guest> take();
  /// The seat of a rank that has gone may be taken again.
  void free_seat(Rank rank);

 private:
  Rendezvous::Place admit(const Newcomer& newcomer);

  const std::vector<Term> introduction_;
  const std::vector<std::byte> instructions_;
  std::mutex mutex_;
  std::vector<bool> taken_;  // by rank
  std::vector<Guest> guests_;
  std::optional<Rendezvous> rendezvous_;  // the last: its thread uses all of the above
};

}  // namespace ferry

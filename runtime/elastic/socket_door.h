#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/rendezvous/rendezvous.h"
#include "comm/stream/stream_hub.h"
#include "runtime/elastic/door.h"
#include "runtime/options/elastic_options.h"

namespace ferry {

/// Throws what a SocketDoor with these options would for its address and its key file, before something that takes long. Does
/// nothing if there is to be none.
void check_socket_door(const ElasticOptions& options);

/// A door that listens on a socket. Any thread may call it.
class SocketDoor final : public Door {
 public:
  /// Those who come have links of `hub`, which outlives this. Throws Error for an address that cannot be listened on, or a key
  /// file that cannot be read.
  SocketDoor(const ElasticOptions& options, DoorRules rules, StreamHub& hub);

  const std::string& address() const override { return rendezvous_->address(); }
  std::vector<Guest> take() override;
  void free_seat(Rank rank) override;

 private:
  struct Visit {
    Rank rank;
    FileDescriptor socket;
    std::string host;
  };

  Rendezvous::Place admit(const Newcomer& newcomer);

  StreamHub& hub_;
  const std::vector<Term> introduction_;
  const std::vector<std::byte> instructions_;
  std::mutex mutex_;
  DoorSeats seats_;
  std::map<int32_t, std::string> hosts_;  // by rank, of those that are admitted and not there yet
  std::vector<Visit> visits_;
  std::optional<Rendezvous> rendezvous_;  // the last: its thread uses all of the above
};

}  // namespace ferry

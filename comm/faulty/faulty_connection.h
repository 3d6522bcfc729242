#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "comm/failure_latch.h"
#include "comm/faulty/faulty_links.h"

// What is under way between two ranks that have a link.

namespace ferry {

/// A send or receive on a simulated link. Holds the contract of comm/link.h against its users: a send's memory does not change
/// before it is done.
struct FaultyLinkOp final : PendingOp {
  FaultyLinkOp(const OpInfo& op_info, std::shared_ptr<FaultyConnection> op_connection, int op_side);
  ~FaultyLinkOp() override;

  bool is_done() const { return *done; }
  bool has_ended() const;
  /// Of a receive: whether a message fits; and the message, false if it does not.
  bool takes(std::size_t num_bytes) const;
  bool deliver(std::span<const std::byte> message);
  void check_memory() const;

  const std::shared_ptr<FaultyConnection> connection;
  const int side;
  std::shared_ptr<bool> done = std::make_shared<bool>(false);
  std::size_t num_moved = 0;
  std::span<std::byte> memory;      // of a receive
  std::span<const std::byte> sent;  // of a send
  std::vector<std::byte> copy;      // of what was sent, as it was then
};

/// A message on its way, or what ends a link.
struct FaultyShipment {
  using Kind = ShipmentKind;
  enum class Place { kNone, kReceive, kHolding, kSink };  // as of StreamState
  Kind kind = Kind::kMessage;
  int tag = 0;
  std::vector<std::byte> bytes;
  Deadline posted;
  std::shared_ptr<bool> sent;    // becomes true when its sender may forget it
  bool breaks_its_link = false;  // in its middle
  Place place = Place::kNone;    // where it comes to, once its first half is there
  FaultyLinkOp* op = nullptr;    // of kReceive
};

struct FaultyConnection {
  struct End {
    Rank rank;                        // of the network
    Rank peer{-1};                    // as it calls the other end
    std::shared_ptr<FaultyHub*> hub;  // that has adopted it
    FailureLatch failure;
    LinkEnd end = LinkEnd::kBroken;
    bool end_was_told = false;
    bool wants_to_go = false;                                      // has said so
    std::map<int, std::deque<FaultyLinkOp*>> posted;               // receives, by tag
    std::map<int, std::deque<std::vector<std::byte>>> unexpected;  // nobody has asked for them yet, by tag
    std::deque<FaultyShipment> under_way;                          // to the other end
    // Sends, by when they were posted: that end when this end's rank next looks for what has come, and that never will.
    std::vector<std::pair<Deadline, std::shared_ptr<bool>>> unread;
    std::vector<Deadline> lost;
    Deadline last_arrival = Deadline::min();
    Deadline last_heard;
    std::deque<Deadline> questions;  // when those were sent that are not answered
  };
  std::array<End, 2> ends;
  bool is_severed = false;  // nothing arrives any more
};

}  // namespace ferry

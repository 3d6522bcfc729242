#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "comm/faulty/faulty_network.h"
#include "comm/link.h"

// Links over a FaultyNetwork, as sockets are, good and bad. What is sent on one link arrives in order, a message in two halves,
// or not at all once the link is broken: no single message is lost, comes twice or is damaged. A process that dies, a
// connection that breaks and a goodbye reach the other end behind what was sent before, or in its place; a host that cannot be
// reached is noticed after 5 s by an end that has nothing under way, otherwise after a quarter of an hour (TCP's keepalive and
// its retransmissions).

namespace ferry {

/// What is thrown by all that a killed rank does with its links: no Error, as none of its code is to go on. While it unwinds,
/// or leaves, its calls throw Error{kCancelled}: destructors expect nothing else.
struct RankKilled {};

struct FaultyConnection;
struct FaultyLinkOp;
class FaultyHub;

/// A message, or what ends a link: with a goodbye, or without one.
enum class ShipmentKind : uint8_t { kMessage, kGoodbye, kEnd };

/// All links of a simulated cluster. Everything is called by the thread whose turn it is.
class FaultyLinks {
 public:
  using Duration = VirtualTime::Duration;

  /// What a message is to whoever counts the time that a peer takes.
  enum class Role { kOther, kQuestion, kAnswer, kFarewell };
  /// What is not known here of the messages that are carried.
  struct Wire {
    std::function<Role(std::span<const std::byte> message, int tag)> role_of;
    /// How long a sender has worked for a message, told so in it: its real time must not be seen.
    std::function<Duration(std::span<std::byte> message, int tag, const Slowness& slowness)> work;
    /// A planted bug: changes messages that go from one rank to another. May be empty.
    std::function<void(std::span<std::byte> message, int tag, Rank from, Rank to)> spoil;
    /// Likewise: whether a message is to vanish though its link goes on. May be empty.
    std::function<bool(std::span<const std::byte> message, int tag)> loses;
  };

  /// A link that its own end gave up, without a goodbye, while it still was whole for it.
  struct GivenUp {
    Rank by, of;  // of the network
    std::string reason;
    std::optional<Duration> unanswered;  // how long the oldest question that nothing has come for is under way
    Duration silence{0};                 // since anything came
    Duration unsent{0};                  // how long the oldest message waits to leave
    bool wants_to_go = false;            // the other end had said farewell
  };

  /// `network` outlives this.
  FaultyLinks(FaultyNetwork& network, Wire wire);
  ~FaultyLinks();
  FaultyLinks(const FaultyLinks&) = delete;
  FaultyLinks& operator=(const FaultyLinks&) = delete;

  /// A connection between two ranks of the network, each of which adopts its end. `b_for_a`: what `a` calls the other one.
  std::shared_ptr<FaultyConnection> connect(Rank a, Rank b, Rank b_for_a);
  /// Throws RankKilled, or Error{kCancelled} while an exception is on its way, if the rank was killed.
  void require_alive(Rank rank) const;

  /// From now on the rank is in its destructors.
  void leave(Rank rank) { leaving_.insert(rank.value); }

  const std::vector<GivenUp>& given_up() const { return given_up_; }

  /// The link of two ranks breaks: its ends hear of it at once, late, or much later.
  void cut(Rank a, Rank b);
  /// The rank's process has ended without a word.
  void end_process(Rank rank);
  /// Routes between two ranks are dead until `end`.
  void part(Rank a, Rank b, Deadline end);

 private:
  friend class FaultyHub;
  friend class FaultyLink;
  using Connection = std::shared_ptr<FaultyConnection>;

  Connection find(Rank a, Rank b) const;
  std::shared_ptr<bool> send(const Connection& connection, int side, int tag, std::span<const std::byte> data);
  void befall(const Fault& fault, const Connection& connection, int side);
  void post_end(const Connection& connection, int side, ShipmentKind kind, Duration after);
  void schedule(const Connection& connection, int side, Duration work);
  void advance(const Connection& connection, int side);
  void begin(FaultyConnection& connection, int side);
  void complete(const Connection& connection, int side);
  void sever(const Connection& connection, Duration notice, Duration other_notice);
  void break_end(const Connection& connection, int side, Duration after);
  void set_failure(FaultyConnection& connection, int side, LinkEnd end, ErrorCode code, const std::string& reason);
  void tell(FaultyConnection& connection, int side);
  Duration draw_notice();
  void give_up(const Connection& connection, int side, const std::string& reason);
  void refuse(const Connection& connection, int side, const FaultyLinkOp& op, std::size_t num_bytes);
  void read(Rank rank) const;
  void await(Rank rank, Deadline deadline, const std::function<bool()>& has_ended);

  FaultyNetwork& network_;
  const Wire wire_;
  std::vector<Connection> connections_;
  std::vector<GivenUp> given_up_;
  std::set<int32_t> leaving_, waiting_;  // ranks
};

/// What one rank waits for its links with.
class FaultyHub final : public LinkHub {
 public:
  /// `rank` of the network. `links` outlives this.
  FaultyHub(FaultyLinks& links, Rank rank, OnLinkEnd on_end);
  ~FaultyHub() override;
  FaultyHub(const FaultyHub&) = delete;
  FaultyHub& operator=(const FaultyHub&) = delete;

  Rank rank() const { return rank_; }
  /// This rank's end of a connection, once.
  std::unique_ptr<Link> adopt(const std::shared_ptr<FaultyConnection>& connection);

  Deadline now() const override;
  std::size_t wait_any(std::span<PendingOp* const> ops, Deadline deadline) override;

 private:
  friend class FaultyLinks;
  friend class FaultyLink;

  FaultyLinks& links_;
  const Rank rank_;
  const OnLinkEnd on_end_;
  const std::shared_ptr<FaultyHub*> self_;  // null once this is gone: for events that come later
};

}  // namespace ferry

#include "comm/faulty/faulty_links.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "comm/faulty/faulty_connection.h"
#include "runtime/base/check.h"

namespace ferry {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;
using Shipment = FaultyShipment;
using End = FaultyConnection::End;

constexpr seconds kIdleLoss{5};        // until an idle end notices that a host cannot be reached
constexpr seconds kBusyLoss{15 * 60};  // until one with something under way does

std::string name(Rank rank) { return std::to_string(rank.value); }

}  // namespace

FaultyLinks::FaultyLinks(FaultyNetwork& network, Wire wire) : network_(network), wire_(std::move(wire)) {
  network_.links_ = this;
}

FaultyLinks::~FaultyLinks() { network_.links_ = nullptr; }

std::shared_ptr<FaultyConnection> FaultyLinks::connect(Rank a, Rank b, Rank b_for_a) {
  auto connection = std::make_shared<FaultyConnection>();
  connection->ends[0].rank = connection->ends[1].peer = a;
  connection->ends[1].rank = b;
  connection->ends[0].peer = b_for_a;
  for (End& end : connection->ends) end.last_heard = network_.time_.now();
  connections_.push_back(connection);
  return connection;
}

void FaultyLinks::require_alive(Rank rank) const {
  if (!network_.is_killed(rank)) return;
  if (std::uncaught_exceptions() > 0 || leaving_.contains(rank.value))
    throw Error(ErrorCode::kCancelled, "rank " + name(rank) + " was killed");
  throw RankKilled();
}

/// The last one that they had.
FaultyLinks::Connection FaultyLinks::find(Rank a, Rank b) const {
  const auto joins = [&](const Connection& connection) {
    const Rank one = connection->ends[0].rank, other = connection->ends[1].rank;
    return (one == a && other == b) || (one == b && other == a);
  };
  const auto found = std::find_if(connections_.rbegin(), connections_.rend(), joins);
  return found == connections_.rend() ? nullptr : *found;
}

std::shared_ptr<bool> FaultyLinks::send(const Connection& connection, int side, int tag, std::span<const std::byte> data) {
  End& from = connection->ends[static_cast<std::size_t>(side)];
  const Rank to = connection->ends[static_cast<std::size_t>(1 - side)].rank;
  auto sent = std::make_shared<bool>(network_.send_end_ == FaultyNetwork::SendEnd::kAtOnce);
  from.under_way.push_back({.tag = tag, .bytes = {data.begin(), data.end()}, .posted = network_.time_.now(), .sent = sent});
  const std::span<std::byte> bytes = from.under_way.back().bytes;
  const Role role = wire_.role_of(bytes, tag);
  if (role == Role::kQuestion) from.questions.push_back(network_.time_.now());
  if (role == Role::kFarewell) from.wants_to_go = true;
  Duration work = wire_.work(bytes, tag, network_.slowness(from.rank));
  if (wire_.spoil) wire_.spoil(bytes, tag, from.rank, to);
  for (const Fault& fault : network_.count_message(from.rank, to, tag, data.size())) {
    if (fault.kind == FaultKind::kDelay) work += fault.duration;
    befall(fault, connection, side);
  }
  if (from.under_way.empty()) return sent;  // a fault has taken it
  if (wire_.loses && wire_.loses(bytes, tag)) {
    *sent = true;
    from.under_way.pop_back();
    return sent;
  }
  schedule(connection, side, work);
  return sent;
}

void FaultyLinks::befall(const Fault& fault, const Connection& connection, int side) {
  const Rank from = connection->ends[static_cast<std::size_t>(side)].rank;
  const Rank to = connection->ends[static_cast<std::size_t>(1 - side)].rank;
  network_.note_fault(fault, from, to);
  if (fault.kind == FaultKind::kDrop || fault.kind == FaultKind::kCut) {
    sever(connection, draw_notice(), draw_notice());
  } else if (fault.kind == FaultKind::kTruncate) {
    auto& under_way = connection->ends[static_cast<std::size_t>(side)].under_way;
    if (!under_way.empty()) under_way.back().breaks_its_link = true;
  } else {
    network_.befall_ranks(fault, from, to);
  }
}

/// Two turns of the message that was posted last: its first half arrives, and the rest.
void FaultyLinks::schedule(const Connection& connection, int side, Duration work) {
  End& from = connection->ends[static_cast<std::size_t>(side)];
  const Deadline now = network_.time_.now();
  const Duration delay = work + network_.draw_delay();
  const Deadline begun = std::max(from.last_arrival, now + delay / 2);
  from.last_arrival = std::max(from.last_arrival, now + delay);
  for (const Deadline time : {begun, from.last_arrival})
    network_.time_.at(time, [this, connection, side] { advance(connection, side); });
}

void FaultyLinks::post_end(const Connection& connection, int side, ShipmentKind kind, Duration after) {
  connection->ends[static_cast<std::size_t>(side)].under_way.push_back(
      {.kind = kind, .bytes = {}, .sent = std::make_shared<bool>(true)});
  schedule(connection, side, after);
}

/// One more half of what is under way from `side` arrives, in order, unless nothing does for now.
void FaultyLinks::advance(const Connection& connection, int side) {
  End& from = connection->ends[static_cast<std::size_t>(side)];
  End& to = connection->ends[static_cast<std::size_t>(1 - side)];
  if (from.under_way.empty() || connection->is_severed) return;
  const Deadline dead_until = network_.dead_until(from.rank, to.rank);
  if (dead_until > network_.time_.now()) {
    if (dead_until == Deadline::max()) return;
    network_.time_.at(dead_until, [this, connection, side] { advance(connection, side); });
    return;
  }
  if (from.under_way.front().place == Shipment::Place::kNone) return begin(*connection, side);
  complete(connection, side);
}

void FaultyLinks::begin(FaultyConnection& connection, int side) {
  Shipment& shipment = connection.ends[static_cast<std::size_t>(side)].under_way.front();
  End& to = connection.ends[static_cast<std::size_t>(1 - side)];
  shipment.place = Shipment::Place::kHolding;
  auto& posted = to.posted[shipment.tag];
  if (shipment.kind != Shipment::Kind::kMessage || posted.empty()) return;
  FaultyLinkOp& op = *posted.front();
  const std::size_t size = shipment.bytes.size();
  if (!op.takes(size)) return;  // complete() ends the link
  posted.pop_front();
  shipment.place = Shipment::Place::kReceive;
  shipment.op = &op;
  std::copy_n(shipment.bytes.begin(), size / 2, op.memory.begin());
}

void FaultyLinks::complete(const Connection& connection, int side) {
  End& to = connection->ends[static_cast<std::size_t>(1 - side)];
  auto& under_way = connection->ends[static_cast<std::size_t>(side)].under_way;
  if (under_way.front().breaks_its_link) return sever(connection, draw_notice(), draw_notice());
  const Shipment shipment = std::move(under_way.front());
  under_way.pop_front();
  if (to.failure.is_set()) {
    *shipment.sent = true;
    return;
  }
  if (shipment.kind != Shipment::Kind::kMessage) {
    const bool is_goodbye = shipment.kind == Shipment::Kind::kGoodbye;
    set_failure(*connection, 1 - side, is_goodbye ? LinkEnd::kLeft : LinkEnd::kBroken, ErrorCode::kUnavailable,
                is_goodbye ? "left" : "its connection broke: closed without a goodbye");
    return;
  }
  to.last_heard = network_.time_.now();
  if (wire_.role_of(shipment.bytes, shipment.tag) == Role::kAnswer && !to.questions.empty()) to.questions.pop_front();
  const bool is_held = network_.send_end_ == FaultyNetwork::SendEnd::kWhenReceived;
  auto& posted = to.posted[shipment.tag];
  FaultyLinkOp* op = shipment.op;
  if (shipment.place == Shipment::Place::kHolding && !posted.empty() && to.unexpected[shipment.tag].empty()) {
    op = posted.front();
    posted.pop_front();
  }
  *shipment.sent = *shipment.sent || !is_held;
  if (is_held) to.unread.emplace_back(shipment.posted, shipment.sent);
  if (waiting_.contains(to.rank.value))
    network_.time_.at(network_.time_.stopped_until(to.rank), [this, rank = to.rank] { read(rank); });
  if (op == nullptr) {
    if (shipment.place == Shipment::Place::kHolding) to.unexpected[shipment.tag].push_back(shipment.bytes);
    return;
  }
  if (!op->deliver(shipment.bytes)) refuse(connection, 1 - side, *op, shipment.bytes.size());
}

/// Nothing arrives any more, also of what is under way.
void FaultyLinks::sever(const Connection& connection, Duration notice, Duration other_notice) {
  if (std::exchange(connection->is_severed, true)) return;
  for (End& end : connection->ends) {
    for (const Shipment& shipment : end.under_way) {
      if (!*shipment.sent) end.lost.push_back(shipment.posted);
    }
    end.under_way.clear();
  }
  break_end(connection, 0, notice);
  break_end(connection, 1, other_notice);
}

/// How long an end takes to notice: mostly it is told.
FaultyLinks::Duration FaultyLinks::draw_notice() {
  const int64_t kind = network_.random_.below(8);
  if (kind == 0) return kBusyLoss;
  if (kind == 1) return kIdleLoss;
  return microseconds(network_.random_.between(0, 5000));
}

void FaultyLinks::break_end(const Connection& connection, int side, Duration after) {
  network_.time_.at(network_.time_.now() + after, [this, connection, side, is_told = after < kIdleLoss] {
    set_failure(*connection, side, LinkEnd::kBroken, ErrorCode::kUnavailable,
                is_told ? "its connection broke: Connection reset by peer" : "its connection broke: Connection timed out");
  });
}

void FaultyLinks::set_failure(FaultyConnection& connection, int side, LinkEnd how, ErrorCode code, const std::string& reason) {
  End& end = connection.ends[static_cast<std::size_t>(side)];
  if (!end.failure.set(code, end.peer, reason)) return;
  end.end = how;
  network_.log("rank " + name(end.rank) + "'s link ends, with " +
               name(connection.ends[static_cast<std::size_t>(1 - side)].rank) + ": " + reason);
  tell(connection, side);
}

void FaultyLinks::tell(FaultyConnection& connection, int side) {
  End& end = connection.ends[static_cast<std::size_t>(side)];
  if (!end.hub || *end.hub == nullptr || network_.is_killed(end.rank) || std::exchange(end.end_was_told, true)) return;
  if ((*end.hub)->on_end_) (*end.hub)->on_end_(end.peer, end.end, end.failure.message());
}

void FaultyLinks::cut(Rank a, Rank b) {
  if (const Connection connection = find(a, b)) sever(connection, draw_notice(), draw_notice());
}

void FaultyLinks::end_process(Rank rank) {
  for (const Connection& connection : connections_) {
    for (int side = 0; side < 2; ++side) {
      End& end = connection->ends[static_cast<std::size_t>(side)];
      if (end.rank != rank || !end.failure.set(ErrorCode::kCancelled, Rank{}, "the process ended")) continue;
      if (network_.random_.one_in(4)) end.under_way.clear();
      post_end(connection, side, Shipment::Kind::kEnd, microseconds(network_.random_.between(0, 5000)));
    }
  }
}

void FaultyLinks::part(Rank a, Rank b, Deadline until) {
  const Deadline now = network_.time_.now();
  if (until - now <= kIdleLoss) return;
  const Connection connection = find(a, b);
  if (!connection) return;
  network_.time_.at(now + kIdleLoss, [this, connection, until] {
    const auto is_idle = [](const End& end) { return end.under_way.empty(); };
    if (std::ranges::none_of(connection->ends, is_idle)) return;
    const Duration left = std::min<Duration>(kBusyLoss, until - network_.time_.now());
    sever(connection, is_idle(connection->ends[0]) ? Duration(0) : left, is_idle(connection->ends[1]) ? Duration(0) : left);
  });
  if (until - now <= kBusyLoss) return;
  network_.time_.at(now + kBusyLoss, [this, connection] { sever(connection, Duration(0), Duration(0)); });
}

/// An end that ends its link by itself, without a goodbye.
void FaultyLinks::give_up(const Connection& connection, int side, const std::string& reason) {
  End& end = connection->ends[static_cast<std::size_t>(side)];
  const End& other = connection->ends[static_cast<std::size_t>(1 - side)];
  const Deadline now = network_.time_.now();
  if (!end.failure.set(ErrorCode::kUnavailable, end.peer, reason)) return;
  GivenUp given_up{.by = end.rank,
                   .of = other.rank,
                   .reason = reason,
                   .unanswered = std::nullopt,
                   .silence = now - end.last_heard,
                   .wants_to_go = other.wants_to_go};
  if (!end.questions.empty()) given_up.unanswered = now - end.questions.front();
  for (const auto& [posted, sent] : other.unread) given_up.unsent = std::max(given_up.unsent, now - posted);
  for (const Shipment& shipment : end.under_way) {
    if (!*shipment.sent) given_up.unsent = std::max(given_up.unsent, now - shipment.posted);
  }
  for (const auto& posted : end.lost) given_up.unsent = std::max(given_up.unsent, now - posted);
  given_up_.push_back(std::move(given_up));
  network_.log("rank " + name(end.rank) + " gives up its link with " + name(other.rank), ": " + reason);
  post_end(connection, side, Shipment::Kind::kEnd, {});
  network_.time_.at(now, [this, connection, side] { tell(*connection, side); });
}

/// A message does not fit who receives it.
void FaultyLinks::refuse(const Connection& connection, int side, const FaultyLinkOp& op, std::size_t num_bytes) {
  set_failure(*connection, side, LinkEnd::kBroken, ErrorCode::kInternal,
              "sent " + std::to_string(num_bytes) + " bytes for the " + describe(op.info));
  post_end(connection, side, Shipment::Kind::kEnd, {});
}

/// Takes what has come for a rank out of its sockets.
void FaultyLinks::read(Rank rank) const {
  for (const Connection& connection : connections_) {
    for (End& end : connection->ends) {
      if (end.rank != rank) continue;
      for (const auto& [posted, sent] : end.unread) *sent = true;
      end.unread.clear();
    }
  }
}

/// Gives the turn away until something has ended or the deadline has come.
void FaultyLinks::await(Rank rank, Deadline deadline, const std::function<bool()>& has_ended) {
  require_alive(rank);
  read(rank);
  waiting_.insert(rank.value);
  network_.time_.wait(rank, deadline, [&] { return network_.is_killed(rank) || has_ended(); });
  waiting_.erase(rank.value);
  require_alive(rank);
}

}  // namespace ferry

#include "comm/faulty/faulty_network.h"

#include <algorithm>
#include <utility>

#include "comm/faulty/faulty_group.h"
#include "runtime/base/check.h"

namespace ferry {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

constexpr seconds kKeepAliveLoss{5};  // until a host that cannot be reached counts as lost

bool can_be_harmless(FaultKind kind) {
  return kind == FaultKind::kDelay || kind == FaultKind::kPartition || kind == FaultKind::kStop;
}

std::string name_of(Rank rank) { return std::to_string(rank.value); }

}  // namespace

FaultyNetwork::FaultyNetwork(VirtualTime& time, int num_ranks, const Faults& faults, uint64_t seed, Wire wire, EventLog& log,
                             Bug bug)
    : time_(time),
      faults_(faults),
      random_(seed),
      wire_(std::move(wire)),
      log_(log),
      bug_(bug),
      send_end_(static_cast<SendEnd>(random_.below(3))),
      ranks_(static_cast<std::size_t>(num_ranks)),
      dead_until_(ranks_.size() * ranks_.size(), Deadline::min()),
      holds_back_(dead_until_.size(), false) {}

FaultyNetwork::~FaultyNetwork() = default;

std::unique_ptr<Group> FaultyNetwork::join(Rank rank) {
  return std::make_unique<FaultyGroup>(*this, rank, static_cast<int>(ranks_.size()));
}

std::shared_ptr<bool> FaultyNetwork::send(Rank from, Rank to, int tag, std::span<const std::byte> data) {
  Shipment shipment{.from = from,
                    .to = to,
                    .tag = tag,
                    .bytes = {data.begin(), data.end()},
                    .delay = VirtualTime::Duration(random_.between(faults_.min_delay.count(), faults_.max_delay.count())),
                    .send_has_ended = std::make_shared<bool>(send_end_ == SendEnd::kAtOnce)};
  std::shared_ptr<bool> has_ended = shipment.send_has_ended;
  ++num_messages_;
  const std::string size = wire_.has_fixed_size(tag) ? " of " + std::to_string(data.size()) + " bytes" : "";
  log("message " + std::to_string(num_messages_) + ": " + name_of(from) + " -> " + name_of(to) + " tag " + std::to_string(tag) +
      size);
  for (const Fault& fault : faults_.faults) {
    if (fault.message == num_messages_) befall(fault, shipment);
  }
  dispatch(std::move(shipment));
  return has_ended;
}

void FaultyNetwork::dispatch(Shipment shipment) {
  const std::size_t route = link(shipment.from, shipment.to);
  const bool is_dead = dead_until_[route] > time_.now();
  if (shipment.copies == 0 || ranks_[idx(shipment.from)].is_lost || (is_dead && !holds_back_[route])) return;
  Channel& to = channel(shipment.from, shipment.to, shipment.tag);
  to.last_arrival = std::max({to.last_arrival, time_.now() + shipment.delay, is_dead ? dead_until_[route] : Deadline::min()});
  const auto shared = std::make_shared<Shipment>(std::move(shipment));
  time_.at(to.last_arrival, [this, shared] { arrive(*shared); });
}

void FaultyNetwork::arrive(const Shipment& shipment) {
  const std::size_t route = link(shipment.from, shipment.to);
  if (dead_until_[route] > time_.now() && !holds_back_[route]) return;  // lost on the way
  Channel& to = channel(shipment.from, shipment.to, shipment.tag);
  for (int i = 0; i < shipment.copies; ++i)
    to.messages.emplace(to.num_arrived++, Arrival{shipment.bytes, shipment.send_has_ended});
  if (bug_ == Bug::kSwapsMessages && to.num_arrived >= 2 && to.messages.contains(to.num_arrived - 2))
    std::swap(to.messages.at(to.num_arrived - 1), to.messages.at(to.num_arrived - 2));
  if (send_end_ == SendEnd::kOnArrival) *shipment.send_has_ended = true;
}

void FaultyNetwork::befall(const Fault& fault, Shipment& shipment) {
  log(std::string("fault: ") + fault_name(fault.kind));
  ++num_faults_[static_cast<std::size_t>(fault.kind)];
  const auto victim = Rank{static_cast<int>(fault.choice % ranks_.size())};
  is_harmless_ = is_harmless_ && can_be_harmless(fault.kind) && fault.duration <= faults_.patience;
  if (fault.kind != FaultKind::kKill && fault.kind != FaultKind::kStop) {
    harm(shipment.from);
    harm(shipment.to);
  }
  switch (fault.kind) {
    case FaultKind::kDelay: shipment.delay += fault.duration; break;
    case FaultKind::kDrop: shipment.copies = 0; break;
    case FaultKind::kDuplicate: shipment.copies *= 2; break;
    case FaultKind::kTruncate: truncate(fault, shipment); break;
    case FaultKind::kFlip: flip(fault, shipment); break;
    case FaultKind::kCut: cut(shipment.from, shipment.to); break;
    case FaultKind::kPartition: partition(fault); break;
    case FaultKind::kKill: kill(victim); break;
    case FaultKind::kStop: stop(fault, victim); break;
  }
}

void FaultyNetwork::truncate(const Fault& fault, Shipment& shipment) {
  if (shipment.bytes.empty()) return;
  const std::size_t size = shipment.bytes.size();
  shipment.bytes.resize(fault.choice % size);
  if (bug_ == Bug::kHidesTruncation) shipment.bytes.resize(size);
}

void FaultyNetwork::flip(const Fault& fault, Shipment& shipment) {
  const std::size_t guarded =
      bug_ == Bug::kFlipsPayloads ? shipment.bytes.size() : wire_.guarded_bytes(shipment.bytes, shipment.tag);
  if (guarded == 0) return;
  const std::size_t bit = fault.choice % (8 * guarded);
  shipment.bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
}

/// Both ends lose the connection for good; one in four times an end does not notice.
void FaultyNetwork::cut(Rank a, Rank b) {
  for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
    dead_until_[link(from, to)] = Deadline::max();
    holds_back_[link(from, to)] = false;
    if (random_.one_in(4)) continue;
    tell_loss(from, to, "the connection broke", microseconds(random_.between(0, 5000)));
  }
}

/// Who is on the other side is drawn; a partition that is not for good holds messages back, as TCP does, or loses them.
void FaultyNetwork::partition(const Fault& fault) {
  const bool is_for_good = fault.choice % 4 == 0;
  const bool holds_back = !is_for_good && fault.choice % 8 < 6;
  const uint64_t sides = 1 + (fault.choice >> 8U) % ((uint64_t{1} << ranks_.size()) - 2);  // a bit per rank, both values occur
  const Deadline end = is_for_good ? Deadline::max() : time_.now() + fault.duration;
  log("ranks " + std::to_string(sides) + " (a bit each) cannot reach the others" +
      (is_for_good ? "" : " for " + std::to_string(fault.duration.count()) + " ns"));
  harm_all();
  if (!holds_back) is_harmless_ = false;
  const auto side = [sides](std::size_t rank) { return (sides >> rank & 1U) != 0; };
  for (std::size_t a = 0; a < ranks_.size(); ++a) {
    for (std::size_t b = 0; b < ranks_.size(); ++b) {
      if (side(a) == side(b)) continue;
      const Rank from{static_cast<int>(a)}, to{static_cast<int>(b)};
      const std::size_t route = link(from, to);
      if (dead_until_[route] > end) continue;
      dead_until_[route] = end;
      holds_back_[route] = holds_back;
      const bool watches = a == 0 || b == 0;
      if (watches && end - time_.now() > kKeepAliveLoss) tell_loss(from, to, "the host cannot be reached", kKeepAliveLoss);
    }
  }
}

void FaultyNetwork::stop(const Fault& fault, Rank rank) {
  log("rank " + name_of(rank) + " stands still for " + std::to_string(fault.duration.count()) + " ns");
  harm(rank);
  time_.stop_rank(rank, time_.now() + fault.duration);
}

void FaultyNetwork::kill(Rank rank) {
  RankState& state = ranks_[idx(rank)];
  if (state.failure == nullptr || state.is_lost) return;  // has left or died before
  state.is_killed = true;
  state.failure->set_aborted();
  lose(rank);
}

void FaultyNetwork::lose(Rank rank) {
  if (ranks_[idx(rank)].is_lost) return;
  log("rank " + name_of(rank) + " is gone");
  harm(rank);
  ranks_[idx(rank)].is_lost = true;
  for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) {
    const bool watches = r == 0 || rank.value == 0;
    if (r == rank.value || !watches) continue;
    const bool is_cut_off = dead_until_[link(rank, Rank{r})] > time_.now();
    tell_loss(Rank{r}, rank, "the process ended", is_cut_off ? kKeepAliveLoss : microseconds(random_.between(100, 5000)));
  }
}

void FaultyNetwork::tell_loss(Rank watcher, Rank lost, const std::string& reason, VirtualTime::Duration after) {
  time_.at(time_.now() + after, [this, watcher, lost, reason] {
    FailureLatch* failure = ranks_[idx(watcher)].failure;
    if (failure == nullptr || !failure->set(ErrorCode::kUnavailable, lost, reason)) return;
    log("rank " + name_of(watcher) + " is told of rank " + name_of(lost) + ": " + reason);
  });
}

void FaultyNetwork::harm_all() {
  for (RankState& rank : ranks_) rank.is_harmed = true;
}

}  // namespace ferry

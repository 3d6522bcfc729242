#include "comm/faulty/faulty_network.h"

#include <algorithm>
#include <utility>

#include "comm/faulty/faulty_group.h"
#include "comm/faulty/faulty_links.h"
#include "runtime/base/check.h"

namespace ferry {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

constexpr seconds kKeepAliveLoss{5};  // until a host that cannot be reached counts as lost

bool can_be_harmless(FaultKind kind) {
  return kind == FaultKind::kDelay || kind == FaultKind::kPartition || kind == FaultKind::kStop;
}

/// 2 ‥ 2048
double draw_slowness(uint64_t choice) { return static_cast<double>(2U << (choice >> 8U) % 11); }

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

std::unique_ptr<Group> FaultyNetwork::join(Rank rank, int size) { return std::make_unique<FaultyGroup>(*this, rank, size); }

std::shared_ptr<bool> FaultyNetwork::send(Rank from, Rank to, int tag, std::span<const std::byte> data) {
  Shipment shipment{.from = from,
                    .to = to,
                    .tag = tag,
                    .bytes = {data.begin(), data.end()},
                    .delay = draw_delay(),
                    .send_has_ended = std::make_shared<bool>(send_end_ == SendEnd::kAtOnce)};
  std::shared_ptr<bool> has_ended = shipment.send_has_ended;
  last_group_message_ = num_messages_ + 1;
  for (const Fault& fault : count_message(from, to, tag, data.size())) befall(fault, shipment);
  dispatch(std::move(shipment));
  return has_ended;
}

std::vector<Fault> FaultyNetwork::count_message(Rank from, Rank to, int tag, std::size_t num_bytes) {
  ++num_messages_;
  const std::string size = wire_.has_fixed_size(tag) ? " of " + std::to_string(num_bytes) + " bytes" : "";
  log("message " + std::to_string(num_messages_) + ": " + name_of(from) + " -> " + name_of(to) + " tag " + std::to_string(tag) +
      size);
  std::vector<Fault> faults;
  for (const Fault& fault : faults_.faults) {
    if (fault.message == num_messages_) faults.push_back(fault);
  }
  constexpr int64_t kMillion = 1'000'000;
  if (drop_rate_ > 0 && static_cast<double>(random_.below(kMillion)) < drop_rate_ * kMillion)
    faults.push_back({.kind = FaultKind::kDrop});
  return faults;
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

bool FaultyNetwork::can_answer(Rank rank, Rank from) const {
  const bool is_cut_off = dead_until(from, rank) > time_.now() || dead_until(rank, from) > time_.now();
  return !is_cut_off && !is_lost(rank) && !time_.is_stopped(rank);
}

void FaultyNetwork::note_fault(const Fault& fault, Rank from, Rank to) {
  log(std::string("fault: ") + fault_name(fault.kind));
  ++num_faults_[static_cast<std::size_t>(fault.kind)];
  if (fault.kind != FaultKind::kDelay) first_hit_ = std::min(first_hit_, num_messages_);
  is_harmless_ = is_harmless_ && can_be_harmless(fault.kind) && fault.duration <= faults_.patience;
  if (fault.kind == FaultKind::kKill || fault.kind == FaultKind::kStop || fault.kind == FaultKind::kSlow) return;
  touch(from);
  touch(to);
}

void FaultyNetwork::befall_ranks(const Fault& fault, Rank from, Rank to) {
  const auto victim = Rank{static_cast<int>(fault.choice % ranks_.size())};
  switch (fault.kind) {
    case FaultKind::kCut: cut(from, to); break;
    case FaultKind::kPartition: partition(fault); break;
    case FaultKind::kKill: kill(victim); break;
    case FaultKind::kStop: stop(fault, victim); break;
    case FaultKind::kSlow: slow(victim, draw_slowness(fault.choice)); break;
    default: break;
  }
}

void FaultyNetwork::strike(FaultKind kind, Rank rank, VirtualTime::Duration duration, double factor) {
  const Fault fault{.kind = kind, .duration = duration, .choice = static_cast<uint64_t>(rank.value)};
  note_fault(fault, rank, rank);
  if (kind == FaultKind::kSlow) return slow(rank, factor);
  befall_ranks(fault, rank, rank);
}

void FaultyNetwork::cut_between(Rank a, Rank b) {
  note_fault({.kind = FaultKind::kCut}, a, b);
  if (links_ != nullptr) return links_->cut(a, b);
  cut(a, b);
}

void FaultyNetwork::befall(const Fault& fault, Shipment& shipment) {
  note_fault(fault, shipment.from, shipment.to);
  switch (fault.kind) {
    case FaultKind::kDelay: shipment.delay += fault.duration; break;
    case FaultKind::kDrop: shipment.copies = 0; break;
    case FaultKind::kDuplicate: shipment.copies *= 2; break;
    case FaultKind::kTruncate: truncate(fault, shipment); break;
    case FaultKind::kFlip: flip(fault, shipment); break;
    default: befall_ranks(fault, shipment.from, shipment.to); break;
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
  for (RankState& rank : ranks_) rank.is_touched = true;
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
      if (links_ != nullptr && a < b) links_->part(from, to, end);
    }
  }
}

void FaultyNetwork::stop(const Fault& fault, Rank rank) {
  log("rank " + name_of(rank) + " stands still for " + std::to_string(fault.duration.count()) + " ns");
  touch(rank);
  time_.stop_rank(rank, time_.now() + fault.duration);
}

void FaultyNetwork::slow(Rank rank, double factor) {
  log("rank " + name_of(rank) + " takes " + std::to_string(factor) + " times as long");
  touch(rank);
  ranks_[idx(rank)].slowness.factor = factor;
}

void FaultyNetwork::delay_work(Rank rank, VirtualTime::Duration delay) {
  note_fault({.kind = FaultKind::kSlow, .duration = delay}, rank, rank);
  log("rank " + name_of(rank) + " takes " + std::to_string(delay.count()) + " ns longer");
  touch(rank);
  ranks_[idx(rank)].slowness.delay = delay;
}

void FaultyNetwork::kill(Rank rank) {
  RankState& state = ranks_[idx(rank)];
  if ((state.failure == nullptr && state.hub == nullptr) || state.is_lost) return;  // has left or died before
  touch(rank);
  state.is_killed = true;
  if (state.failure != nullptr) state.failure->set_aborted();
  lose(rank);
  if (links_ != nullptr) links_->end_process(rank);
}

void FaultyNetwork::lose(Rank rank) {
  if (ranks_[idx(rank)].is_lost) return;
  log("rank " + name_of(rank) + " is gone");
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

}  // namespace ferry

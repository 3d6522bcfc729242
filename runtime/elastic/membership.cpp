#include "runtime/elastic/membership.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <utility>

#include "moe/assignment.h"
#include "moe/remote/next_placement.h"
#include "profiler/span.h"
#include "runtime/base/error.h"
#include "runtime/rank_setup.h"

namespace ferry {
namespace {

constexpr std::chrono::milliseconds kTendPeriod{10};
constexpr std::chrono::milliseconds kGoodbyeTime{100};                      // for a goodbye to leave
constexpr std::chrono::seconds kLeastPatience{5};                           // with one that gives no sign of life
constexpr int kMostRefusals = 4;                                            // in a row, before it is left at what it is
constexpr std::chrono::seconds kLeastWitnessTime{1}, kMostWitnessTime{10};  // for which ready workers wait for it
constexpr int64_t kBalanceShare = 8;  // of all copies at most one in so many moves for balance's sake at once

std::string rank_name(Rank rank) { return "rank " + std::to_string(rank.value); }

/// In the timeline: what became of a placement that began to be seen to at `begun` (ticks).
void record_placement(PlacementEvent event, uint64_t begun, int64_t num_experts, uint32_t epoch) {
  record_span(Zone::kPlacementChange, begun, now_ticks(), pack_placement(event, num_experts), epoch);
}

/// Whether everybody holds the same in both.
bool is_same(const ExpertPlacement& a, const ExpertPlacement& b) {
  for (int64_t layer = 0; layer < a.num_layers(); ++layer) {
    if (a.experts(layer) != b.experts(layer)) return false;
  }
  return true;
}

}  // namespace

Membership::Membership(RemoteTokenDispatcher& dispatcher, WatchedLinks& hub, std::vector<std::unique_ptr<Link>> links,
                       Options options, OnWorkerChange on_change)
    : dispatcher_(dispatcher),
      hub_(hub),
      options_(std::move(options)),
      on_change_(std::move(on_change)),
      next_epoch_(dispatcher.placement().epoch() + 1) {
  const std::span<const Rank> ranks = dispatcher.placement().ranks();
  for (std::size_t w = 0; w < links.size(); ++w) {
    Member& member = members_.emplace_back();
    member.rank = ranks[w];
    member.link = std::move(links[w]);
    member.is_seated = member.link != nullptr;
    was_seated_.push_back(member.is_seated);
    if (member.link && !hub.fails_together()) post_notice(member);
  }
}

Membership::~Membership() {
  if (order_) order_->fail(Error(ErrorCode::kUnavailable, "the engine stops"));
}

std::vector<Link*> Membership::links() const {
  std::vector<Link*> links;
  for (const Member& member : members_) links.push_back(member.is_seated ? member.link.get() : nullptr);
  links.resize(dispatcher_.placement().ranks().size());
  return links;
}

void Membership::begin_step() {
  ++num_steps_;
  tend();
}

void Membership::tend() {
  if (hub_.fails_together()) return;
  const Deadline now = hub_.now();
  if (now < last_tended_ + kTendPeriod) return;
  last_tended_ = now;
  dispatcher_.workers().look_at_links();
  take_newcomers();
  take_notices();
  look_for_losses();
  keep_newcomers_alive();
  if (relocation_) advance_relocation();
  if (!has_hands()) let_last_one_go();
  if (!relocation_ && !is_stuck_ && has_hands() && wants_change()) plan(Aim::kMembers);
  if (!relocation_ && must_go_back_) go_back();
  const bool may_balance = options_.rebalance_steps > 0 && !is_set_by_hand_;
  if (!relocation_ && may_balance && num_steps_ >= options_.rebalance_steps && has_hands()) {
    num_steps_ = 0;
    plan(Aim::kBalance);
  }
  if (!ended_.empty() && options_.may_drop_links()) ended_.clear();
}

void Membership::take_newcomers() {
  if (!door_) return;
  for (Door::Guest& guest : door_->take()) {
    const auto worker = static_cast<std::size_t>(guest.rank.value) - 1;
    while (members_.size() <= worker) {
      members_.emplace_back();
      members_.back().rank = Rank{static_cast<int32_t>(members_.size())};
    }
    Member& member = members_[worker];
    FERRY_CHECK(member.link == nullptr);
    member.adopted = std::move(guest.link);
    member.link = hub_.watch(*member.adopted);
    post_notice(member);
    is_stuck_ = false;
    num_refusals_ = 0;
    tell({.rank = member.rank,
          .from = WorkerState::kGone,
          .to = WorkerState::kJoining,
          .reason = "it has come and asks for experts",
          .home = std::move(guest.home)});
  }
}

void Membership::post_notice(Member& member) {
  const ExpertPlacement& placement = dispatcher_.placement();
  member.bytes.resize(static_cast<std::size_t>(max_preparation_bytes(placement.num_layers(), placement.num_experts())));
  try {
    member.notice = member.link->irecv(member.bytes, kNoticeTag, Fit::kUpTo);
  } catch (const Error&) {  // it has gone, and its link says so
    member.notice.reset();
  }
}

/// What workers have said meanwhile, but no more of it than steps can wait for.
void Membership::take_notices() {
  for (std::size_t most = 2 * members_.size(); most > 0; --most) {
    std::vector<PendingOp*> ops;
    std::vector<int32_t> workers;
    for (std::size_t w = 0; w < members_.size(); ++w) {
      if (!members_[w].notice) continue;
      ops.push_back(members_[w].notice.get());
      workers.push_back(static_cast<int32_t>(w));
    }
    if (ops.empty()) return;
    std::size_t which = 0;
    try {
      which = hub_.wait_any(ops, hub_.now());
    } catch (const Error&) {  // nothing
      return;
    }
    const int32_t worker = workers[which];
    Member& member = members_[static_cast<std::size_t>(worker)];
    try {
      const std::size_t num_bytes = member.link->wait(*member.notice, hub_.now());
      member.notice.reset();
      read_notice(worker, num_bytes);
      post_notice(member);
    } catch (const Error& error) {
      member.notice.reset();
      if (!member.link->failure()) member.link->fail(error.what());
    }
  }
}

void Membership::read_notice(int32_t worker, std::size_t num_bytes) {
  Member& member = members_[static_cast<std::size_t>(worker)];
  const std::span<const std::byte> message = std::span(member.bytes).first(num_bytes);
  const WireKind kind = read_header_of_any_epoch(message).kind;
  if (kind == WireKind::kKeepAlive) {
    member.last_sign = hub_.now();
    return;
  }
  if (kind != WireKind::kLeave) {
    const Preparation preparation = decode_preparation(message);
    if (!relocation_ || preparation.epoch != relocation_->target().epoch()) return;
    relocation_->take(worker, preparation);
    member.is_ready = true;
    return;
  }
  member.wants_to_leave = true;
  is_stuck_ = false;
  if (member.is_seated) dispatcher_.workers().let_leave(worker);
}

/// Whose link has ended holds nothing any more. Its place is kept until others have its experts.
void Membership::look_for_losses() {
  for (std::size_t w = 0; w < members_.size(); ++w) {
    Member& member = members_[w];
    if (!member.link || member.is_lost || !member.link->failure()) continue;
    const std::string why = member.link->failure()->what();
    is_stuck_ = false;
    num_refusals_ = 0;
    if (relocation_ && relocation_->members().size() > w && relocation_->members()[w].link == member.link.get())
      drop_relocation(Error(ErrorCode::kAborted, rank_name(member.rank) + " was lost meanwhile: " + why));
    member.notice.reset();
    if (member.is_seated && holds_experts(w)) {
      member.is_seated = false;
      member.is_lost = true;
    } else {
      vacate(static_cast<int32_t>(w), why);
    }
  }
}

/// They get no rows yet, nor the dispatcher's keep-alives.
void Membership::keep_newcomers_alive() {
  const Deadline now = hub_.now();
  for (Member& member : members_) {
    if (!is_alive(member) || member.is_seated || now < member.kept_alive + kKeepAlivePeriod) continue;
    member.kept_alive = now;
    member.keep_alive_send.reset();
    member.keep_alive.resize(sizeof(WireHeader));
    write_header({.kind = WireKind::kKeepAlive, .map_epoch = 0}, member.keep_alive);
    try {
      member.keep_alive_send = member.link->isend(member.keep_alive, kRequestTag);
    } catch (const Error&) {  // it has gone, and its link says so
    }
  }
}

void Membership::advance_relocation() {
  if (relocation_->refusal()) return refuse(*relocation_->refusal());
  check_silence();
  if (!relocation_) return;
  hear_witness();
  if (relocation_->refusal()) return refuse(*relocation_->refusal());
  if (!relocation_->is_ready()) return;
  if (order_ && order_->is_given_up()) return give_up(*order_);
  change_placement();
}

/// Workers that are ready wait for what this rank makes of experts that nobody has had: as long again as they took themselves,
/// in bounds. What it has no time for is taken on trust.
void Membership::hear_witness() {
  if (relocation_->to_sing().empty() || relocation_->is_ready()) return;
  CanaryWitness& witness = *options_.witness;
  for (const CanaryWitness::Song& song : witness.take()) relocation_->hear(song.key, song.canary);
  if (!relocation_->is_answered()) return;
  const Deadline now = hub_.now();
  if (!witness_until_)
    witness_until_ = now + std::clamp<Deadline::duration>(now - relocation_begun_, kLeastWitnessTime, kMostWitnessTime);
  if (!witness.is_over() && now < *witness_until_) return;
  witness.give_up();
  relocation_->judge();
}

/// Who has given no sign of life for the timeout is lost: all others wait for it.
void Membership::check_silence() {
  const auto patience = std::max<std::chrono::milliseconds>(options_.timeout, kLeastPatience);
  for (std::size_t w = 0; w < relocation_->members().size(); ++w) {
    Member& member = members_[w];
    if (relocation_->members()[w].link == nullptr || member.is_ready || hub_.now() < member.last_sign + patience) continue;
    const auto silent = std::chrono::duration_cast<std::chrono::seconds>(hub_.now() - member.last_sign);
    member.link->fail("no sign of life for " + std::to_string(silent.count()) + " s while it was to read experts");
  }
  look_for_losses();
}

/// A worker that cannot take more keeps what it has; one that has just come, or cannot even do that, has to go.
void Membership::refuse(Relocation::Refusal refusal) {
  const std::string reason = std::move(refusal.reason);  // which goes with the relocation
  Member& member = members_[static_cast<std::size_t>(refusal.worker)];
  const int64_t held =
      holds_experts(static_cast<std::size_t>(refusal.worker)) ? dispatcher_.placement().max_local_experts(refusal.worker) : 0;
  const bool is_told_to_stay = member.is_seated && (!member.most_experts || *member.most_experts > held);
  std::fprintf(stderr, "ferry: %s cannot hold what it was to: %s\n", rank_name(member.rank).c_str(), one_line(reason).c_str());
  const bool was_by_hand = order_ != nullptr;
  drop_relocation(Error(ErrorCode::kFailedPrecondition, rank_name(member.rank) + " cannot hold what it was to: " + reason));
  if (was_by_hand) return;
  if (++num_refusals_ > kMostRefusals) is_stuck_ = true;
  if (is_told_to_stay) {
    member.most_experts = held;
    return;
  }
  say_goodbye(member, reason);
  member.link->fail("cannot hold what it was to: " + reason);
}

/// What workers have made ready for it goes when they hear of another one.
void Membership::drop_relocation(const Error& why) {
  record_placement(PlacementEvent::kGiveUp, now_ticks(), relocation_->num_loads(), relocation_->target().epoch());
  relocation_.reset();
  if (options_.witness != nullptr) options_.witness->give_up();
  must_go_back_ = order_ != nullptr;
  if (order_) std::exchange(order_, nullptr)->fail(why);
}

void Membership::change_placement() {
  using Seconds = std::chrono::duration<double>;
  const uint64_t begun = now_ticks();
  const std::unique_ptr<Relocation> done = std::exchange(relocation_, nullptr);
  const ExpertPlacement& target = done->target();
  std::vector<int32_t> lost, joined;
  std::vector<Link*> links;
  was_seated_.clear();
  for (std::size_t w = 0; w < target.ranks().size(); ++w) {  // who came later has no part in it
    Member& member = members_[w];
    const bool takes_part = done->members()[w].link != nullptr;
    was_seated_.push_back(takes_part);
    links.push_back(takes_part ? member.link.get() : nullptr);
    if (takes_part && !std::exchange(member.is_seated, true)) joined.push_back(static_cast<int32_t>(w));
    if (member.is_lost && aim_ != Aim::kGoBack) lost.push_back(static_cast<int32_t>(w));
  }
  for (const int32_t worker : lost) {
    const std::optional<Error> why = members_[static_cast<std::size_t>(worker)].link->failure();
    vacate(worker, (why ? std::string(why->what()) + "; " : "") + "its experts are others' now");
  }
  dispatcher_.assign(target, links);
  dispatcher_.keep_alive();  // so that all know, also while there are no rows
  num_refusals_ = 0;
  if (aim_ != Aim::kGoBack) is_set_by_hand_ = aim_ == Aim::kByHand;
  if (done->num_unwitnessed() > 0) {
    std::fprintf(
        stderr,
        "ferry: of the experts that workers have read, %lld could be compared with nobody's: who has them computes with "
        "other kernels, or had no time for it; that their checkpoints have one fingerprint has to do\n",
        static_cast<long long>(done->num_unwitnessed()));
  }
  std::fprintf(stderr, "ferry: placement %u%s: %lld experts moved in %.1f s\n", target.epoch(), aim_name(),
               static_cast<long long>(done->num_loads()), Seconds(hub_.now() - relocation_begun_).count());
  for (const int32_t worker : joined) {
    std::fprintf(stderr, "ferry: rank %d has joined, with up to %lld experts a layer\n", worker + 1,
                 static_cast<long long>(target.max_local_experts(worker)));
  }
  if (options_.on_placement) options_.on_placement();
  if (order_) std::exchange(order_, nullptr)->settle(target.epoch());
  for (std::size_t w = 0; w < members_.size(); ++w) {
    Member& member = members_[w];
    if (!member.is_seated || !member.wants_to_leave) continue;
    if (holds_experts(w)) {
      dispatcher_.workers().let_leave(static_cast<int32_t>(w));
    } else {
      say_goodbye(member);
      vacate(static_cast<int32_t>(w), "has left");
    }
  }
  record_placement(PlacementEvent::kSwitch, begun, done->num_loads(), target.epoch());
}

PlacementEvent Membership::begin_event() const {
  switch (aim_) {
    case Aim::kBalance: return PlacementEvent::kBeginForBalance;
    case Aim::kByHand: return PlacementEvent::kBeginByHand;
    case Aim::kMembers:
    case Aim::kGoBack: break;
  }
  return PlacementEvent::kBegin;
}

const char* Membership::aim_name() const {
  switch (aim_) {
    case Aim::kMembers: return "";
    case Aim::kBalance: return ", for balance";
    case Aim::kByHand: return ", by hand";
    case Aim::kGoBack: return ", which is the one before";
  }
  return "";
}

void Membership::say_goodbye(Member& member, const std::string& reason) {
  std::vector<std::byte> message(sizeof(WireHeader));
  for (const char letter : reason.substr(0, kMaxReasonBytes)) message.push_back(static_cast<std::byte>(letter));
  write_header({.kind = WireKind::kShutDown, .map_epoch = dispatcher_.placement().epoch(), .flags = kRanksLost}, message);
  try {
    const std::unique_ptr<PendingOp> send = member.link->isend(message, kRequestTag);
    member.link->wait(*send, hub_.now() + kGoodbyeTime);
  } catch (const Error&) {  // then it has gone
  }
}

/// Nobody is there to take its experts: they are computed here until somebody is.
void Membership::let_last_one_go() {
  for (std::size_t w = 0; w < members_.size(); ++w) {
    Member& member = members_[w];
    if (!is_alive(member) || !member.wants_to_leave) continue;
    if (relocation_) drop_relocation(Error(ErrorCode::kAborted, rank_name(member.rank) + " has left meanwhile"));
    say_goodbye(member);
    vacate(static_cast<int32_t>(w), "has left");
  }
}

void Membership::close() {
  if (hub_.fails_together()) return;
  take_newcomers();
  door_.reset();
  for (Member& member : members_) {
    if (is_alive(member) && !member.is_seated) say_goodbye(member);
  }
}

/// Nobody is there any more; the seat can be taken by the next who comes.
void Membership::vacate(int32_t worker, const std::string& reason) {
  Member& member = members_[static_cast<std::size_t>(worker)];
  const Rank rank = member.rank;
  if (worker < dispatcher_.workers().size() && dispatcher_.workers()[worker].link != nullptr) {
    dispatcher_.retire(worker, reason);
  } else {
    const bool is_lost = member.link && member.link->failure();
    tell({.rank = rank, .from = WorkerState::kGone, .to = WorkerState::kGone, .reason = reason, .is_lost = is_lost});
  }
  member.notice.reset();
  ended_.push_back(std::exchange(member, Member{}));
  member.rank = rank;
  if (door_) door_->free_seat(rank);
}

bool Membership::holds_experts(std::size_t worker) const {
  const ExpertPlacement& placement = dispatcher_.placement();
  return worker < placement.ranks().size() && placement.max_local_experts(static_cast<int32_t>(worker)) > 0;
}

/// Whether anybody is there who can take experts.
bool Membership::has_hands() const {
  return std::ranges::any_of(members_, [&](const Member& member) { return is_alive(member) && !member.wants_to_leave; });
}

/// Whether somebody has come, wants to go, or was lost with experts that others should have.
bool Membership::wants_change() const {
  for (std::size_t w = 0; w < members_.size(); ++w) {
    const Member& member = members_[w];
    if (is_alive(member) && (!member.is_seated || member.wants_to_leave)) return true;
    if (!member.is_seated && holds_experts(w)) return true;
  }
  return false;
}

void Membership::plan(Aim aim) {
  const uint64_t begun = now_ticks();
  const ExpertPlacement& current = dispatcher_.placement();
  std::vector<WorkerRoom> rooms;
  int64_t num_copies = 0;
  for (const Member& member : members_) {
    rooms.push_back({.rank = member.rank,
                     .is_there = is_alive(member) && !member.wants_to_leave,
                     .holds_current = is_alive(member) && member.is_seated,
                     .most_experts = member.most_experts});
  }
  std::vector<std::vector<double>> cost;
  const ExpertLoads loads = options_.loads();
  for (int64_t layer = 0; layer < current.num_layers(); ++layer) {
    cost.push_back(expected_cost(loads, layer, dispatcher_.expert_cost()));
    num_copies += current.layer(layer).num_physical();
  }
  const bool is_for_balance = aim == Aim::kBalance;
  const NextPlacementOptions wanted{
      .redundancy = options_.redundancy,
      .max_loads = is_for_balance ? num_copies / kBalanceShare : std::numeric_limits<int64_t>::max()};
  std::optional<ExpertPlacement> target = next_placement(next_epoch_, current, rooms, cost, wanted);
  if (!target) {
    is_stuck_ = true;
    std::fprintf(stderr, "ferry: no worker has room for the experts that are missing; the coordinator computes them\n");
    return;
  }
  if (is_for_balance && is_same(current, *target)) return record_placement(PlacementEvent::kLook, begun, 0, next_epoch_);
  begin(std::move(*target), aim);
}

/// All that are there take part, with what they have.
void Membership::begin(ExpertPlacement target, Aim aim) {
  const uint64_t begun = now_ticks();
  std::vector<Relocation::Member> taking_part;
  for (const Member& member : members_) {
    const bool is_there = is_alive(member);
    taking_part.push_back({.link = is_there ? member.link.get() : nullptr, .holds_current = is_there && member.is_seated});
  }
  ++next_epoch_;
  aim_ = aim;
  must_go_back_ = false;
  relocation_begun_ = hub_.now();
  for (Member& member : members_) {
    member.last_sign = relocation_begun_;
    member.is_ready = false;
  }
  witness_until_.reset();
  const auto own_voice = options_.witness != nullptr ? std::optional(options_.witness->voice()) : std::nullopt;
  relocation_ = std::make_unique<Relocation>(dispatcher_.placement(), std::move(target), std::move(taking_part), own_voice);
  if (options_.witness != nullptr) options_.witness->begin(relocation_->to_sing());
  record_placement(begin_event(), begun, relocation_->num_loads(), relocation_->target().epoch());
}

void Membership::tell(const WorkerChange& change) {
  if (on_change_) on_change_(change);
}

}  // namespace ferry

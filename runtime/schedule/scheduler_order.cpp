#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/schedule/scheduler.h"

// Who goes first: what a Scheduler does by its policy.

namespace ferry {
namespace {

/// Where a sequence of this seniority belongs, behind all of the same.
template <class Sequences>
auto place_in(Sequences& sequences, const Seniority& seniority) {
  return std::ranges::upper_bound(sequences, seniority, {}, [](const auto& sequence) { return sequence->seniority; });
}

}  // namespace

/// When it arrives: for good, unless accounts share the slots.
void Scheduler::set_seniority(Sequence& sequence) {
  const PolicyOptions& policy = options_.policy;
  const bool is_fair = policy.policy == SchedulingPolicy::kFair;
  sequence.seniority = {.number = num_added_++};
  if (policy.policy == SchedulingPolicy::kPriority) sequence.seniority.priority = sequence.request.priority;
  sequence.queue_place = sequence.seniority;
  if (is_fair) {
    sequence.account = accounts_.enter(sequence.request.account);
    num_running_of_.resize(std::max(num_running_of_.size(), static_cast<std::size_t>(sequence.account) + 1));
  }
  if (!is_fair && policy.order == QueueOrder::kArrival) return;
  begin(sequence);
  sequence.admission_cost = sequence.num_prompt() - sequence.num_computed;
  undo_begin(sequence);
  if (policy.order == QueueOrder::kArrival) return;
  const std::chrono::nanoseconds arrival = sequence.arrival.time_since_epoch();
  const double added_s = static_cast<double>(sequence.admission_cost) / static_cast<double>(policy.aging_tokens_per_s);
  sequence.seniority.arrival_ns = arrival.count() + static_cast<int64_t>(added_s * 1e9);
  sequence.queue_place = sequence.seniority;
}

Sequence& Scheduler::queue(std::unique_ptr<Sequence> sequence) {
  const auto place = place_in(waiting_, sequence->seniority);
  return **waiting_.insert(place, std::move(sequence));
}

/// A request that goes before the youngest which runs does not wait for room. It gets a slot, if need be that of the youngest,
/// and then its blocks as every request that runs, from those behind it. Equals wait for each other.
void Scheduler::admit_seniors(TimePoint now) {
  const SchedulingPolicy policy = options_.policy.policy;
  const bool is_fair = policy == SchedulingPolicy::kFair;
  if (policy == SchedulingPolicy::kFcfs || (is_fair && accounts_.size() < 2)) return;
  while (!waiting_.empty() && !running_.empty()) {
    if (is_fair && running_.back()->seniority.priority == 0) return;  // no account has two slots
    Sequence& sequence = is_fair ? *next_by_share() : *waiting_.front();
    if (!takes_from_youngest(sequence)) return;
    if (is_fair && look_in_file(sequence, now) == FileLook::kReading) continue;
    if (free_slots_.empty()) evict_youngest(now);
    move_to_running(sequence, sequence.waits_for_media() ? RequestState::kWaitingForMedia : RequestState::kPrefilling, now);
  }
}

/// Returns true if one that waits has a better priority than the youngest that runs, or would otherwise wait for an account
/// that has at least two slots more than its own. Two are enough for the accounts to be no further apart afterwards, so no
/// slot goes back and forth.
bool Scheduler::takes_from_youngest(const Sequence& sequence) const {
  const int64_t youngest = running_.back()->seniority.priority;
  if (options_.policy.policy == SchedulingPolicy::kPriority) return sequence.seniority.priority < youngest;
  return num_running_of(sequence.account) < youngest && lacks_room(sequence);
}

/// Returns true if one that waits cannot be admitted because a slot or blocks are missing.
bool Scheduler::lacks_room(const Sequence& sequence) const {
  const auto is_preempted = [](const auto& other) { return other->state() == RequestState::kPreempted; };
  if (free_slots_.empty() || std::ranges::any_of(running_, is_preempted)) return true;
  const Share first{.num_tokens = std::min(sequence.num_uncomputed(), options_.prefill_chunk)};
  return num_needed_blocks(sequence, first) + num_growth_blocks(running_.size()) > num_available();
}

int64_t Scheduler::num_running_of(int32_t account) const { return num_running_of_[static_cast<std::size_t>(account)]; }

/// It starts anew when there is a slot for it again, for which it waits in its old place.
void Scheduler::evict_youngest(TimePoint now) {
  std::unique_ptr<Sequence> sequence = std::move(running_.back());
  running_.pop_back();
  start_anew(*sequence);
  release_all(*sequence);
  if (sequence->state() != RequestState::kPreempted) note_preempted(*sequence, now);
  sequence->seniority = sequence->queue_place;
  ++num_slotless_;
  ++num_lost_slots_;
  queue(std::move(sequence));
}

/// Returns the one that the policy admits next; null if none may be for now. At least one waits.
Sequence* Scheduler::next_waiting() {
  return options_.policy.policy == SchedulingPolicy::kFair ? next_by_share() : next_by_arrival();
}

/// The first in the queue. Requests of a call that has others running leave the last slot to another call.
Sequence* Scheduler::next_by_arrival() {
  for (const auto& sequence : waiting_) {
    if (sequence->seniority.priority != waiting_.front()->seniority.priority) return nullptr;
    if (!would_take_last_slot(*sequence)) return sequence.get();
  }
  return nullptr;
}

bool Scheduler::would_take_last_slot(const Sequence& sequence) const {
  return free_slots_.size() == 1 && sequence.request.call && sequence.request.call->num_running > 0;
}

/// The first of an account that has the fewest slots. Accounts that have equally few take turns.
Sequence* Scheduler::next_by_share() {
  asking_.clear();
  first_waiting_.assign(num_running_of_.size(), nullptr);
  int64_t fewest = options_.max_running;
  for (const auto& sequence : waiting_) {
    Sequence*& first = first_waiting_[static_cast<std::size_t>(sequence->account)];
    if (first != nullptr) continue;
    first = sequence.get();
    const int64_t num_running = num_running_of(sequence->account);
    if (num_running < fewest) asking_.clear();
    fewest = std::min(fewest, num_running);
    if (num_running == fewest) asking_.push_back(sequence->account);
  }
  admissions_.keep(asking_);
  while (true) {
    Sequence& first = *first_waiting_[static_cast<std::size_t>(admissions_.next())];
    if (admissions_.next_may_take(first.admission_cost)) return &first;
  }
}

/// Admits one that waits; its place in running_.
std::size_t Scheduler::move_to_running(Sequence& sequence, RequestState state, TimePoint now) {
  take_slot(sequence);
  if (sequence.state() == RequestState::kPreempted) --num_slotless_;
  sequence.become(state);
  if (!sequence.first_scheduled) sequence.first_scheduled = now;
  std::unique_ptr<Sequence> moved = take_waiting(sequence);
  if (options_.policy.policy == SchedulingPolicy::kFair) {
    admissions_.take(sequence.admission_cost);
    sequence.seniority = {.priority = num_running_of(sequence.account) - 1, .number = num_admitted_++};
  }
  return static_cast<std::size_t>(running_.insert(place_in(running_, sequence.seniority), std::move(moved)) - running_.begin());
}

/// Some have ended: under kFair those that their accounts had admitted later are one place further ahead.
void Scheduler::renew_seniority() {
  if (options_.policy.policy != SchedulingPolicy::kFair) return;
  std::vector<int64_t> num_before(num_running_of_.size());
  std::ranges::sort(running_, {}, [](const auto& sequence) { return sequence->seniority.number; });
  for (const auto& sequence : running_)
    sequence->seniority.priority = num_before[static_cast<std::size_t>(sequence->account)]++;
  std::ranges::sort(running_, {}, [](const auto& sequence) { return sequence->seniority; });
}

/// Out of the queue.
std::unique_ptr<Sequence> Scheduler::take_waiting(Sequence& sequence) {
  const auto waiting = std::ranges::find(waiting_, &sequence, [](const auto& other) { return other.get(); });
  FERRY_CHECK(waiting != waiting_.end());
  std::unique_ptr<Sequence> taken = std::move(*waiting);
  waiting_.erase(waiting);
  return taken;
}

/// Shares rows of prompts out by accounts' turns, a quantum at a time; what is left of `budget`. Within an account the oldest
/// goes first.
int64_t Scheduler::take_turns(int64_t budget) {
  make_claims(budget);
  const int64_t quantum = prefill_quantum(options_.prefill_chunk);
  while (budget > 0 && !rows_.empty()) {
    std::size_t& idx = first_claims_[static_cast<std::size_t>(rows_.next())];
    while (idx < running_.size() &&
           (running_[idx]->account != rows_.next() || shares_[idx].num_tokens >= claims_[idx] || claims_[idx] == 0))
      ++idx;
    if (idx == running_.size()) {
      rows_.leave();
      continue;
    }
    const int64_t piece = std::min(claims_[idx] - shares_[idx].num_tokens, quantum);
    if (piece > budget) break;
    if (!rows_.next_may_take(piece)) continue;
    rows_.take(piece);
    shares_[idx].num_tokens += piece;
    budget -= piece;
  }
  return budget;
}

/// What those in front of the first preempted one may compute of their prompts, and which accounts ask for rows therefore.
void Scheduler::make_claims(int64_t budget) {
  claims_.assign(running_.size(), 0);
  asking_.clear();
  int32_t largest = -1;
  int64_t num_kept = 0;  // blocks
  for (std::size_t i = 0; i < running_.size() && running_[i]->state() != RequestState::kPreempted; ++i) {
    const Sequence& sequence = *running_[i];
    if (!sequence.decodes() && sequence.state() != RequestState::kWaitingForMedia) claims_[i] = claim_of(i, budget, num_kept);
    num_kept += num_growth_blocks_of(sequence);
    if (claims_[i] == 0) continue;
    asking_.push_back(sequence.account);
    largest = std::max(largest, sequence.account);
  }
  first_claims_.assign(static_cast<std::size_t>(largest) + 1, 0);
  rows_.keep(asking_);
}

/// As many tokens as there will be blocks for, whatever those before it take of the `num_kept` that they may soon need: rows
/// that are given to a prompt are computed.
int64_t Scheduler::claim_of(std::size_t idx, int64_t budget, int64_t num_kept) {
  const Sequence& sequence = *running_[idx];
  const int64_t num_tokens = next_piece(sequence, budget), num_held = std::ssize(sequence.blocks);
  if (num_needed_blocks(sequence, {.num_tokens = num_tokens}) - num_held + num_kept <= num_available()) return num_tokens;
  const int64_t num_reachable = blocks_.num_total() - num_held_blocks(idx + 1) - num_kept;
  const int64_t room = room_in(sequence, num_held + std::max<int64_t>(num_reachable, 0));
  return next_piece(sequence, std::min(num_tokens, room));
}

}  // namespace ferry

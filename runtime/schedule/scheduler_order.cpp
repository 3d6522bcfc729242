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

/// When it arrives: for good, but that accounts take turns at its admission.
void Scheduler::set_seniority(Sequence& sequence) {
  const PolicyOptions& policy = options_.policy;
  const bool is_fair = policy.policy == SchedulingPolicy::kFair;
  sequence.seniority = {.number = num_added_++};
  if (policy.policy == SchedulingPolicy::kPriority) sequence.seniority.priority = sequence.request.priority;
  if (is_fair) sequence.account = accounts_.enter(sequence.request.account);
  if (!is_fair && policy.order == QueueOrder::kArrival) return;
  begin(sequence);
  sequence.admission_cost = sequence.num_prompt() - sequence.num_computed;
  undo_begin(sequence);
  if (policy.order == QueueOrder::kArrival) return;
  const std::chrono::nanoseconds arrival = sequence.arrival.time_since_epoch();
  const double added_s = static_cast<double>(sequence.admission_cost) / static_cast<double>(policy.aging_tokens_per_s);
  sequence.seniority.arrival_ns = arrival.count() + static_cast<int64_t>(added_s * 1e9);
}

Sequence& Scheduler::queue(std::unique_ptr<Sequence> sequence) {
  const auto place = place_in(waiting_, sequence->seniority);
  return **waiting_.insert(place, std::move(sequence));
}

/// Who has a better priority than somebody that is admitted does not wait for room: it gets a slot, if need be that of the
/// youngest, and then its blocks as everybody who runs, from those behind it. Equals wait for each other.
void Scheduler::admit_seniors(TimePoint now) {
  if (options_.policy.policy != SchedulingPolicy::kPriority) return;
  const auto goes_before_youngest = [this](const Sequence& sequence) {
    return !running_.empty() && sequence.seniority.priority < running_.back()->seniority.priority;
  };
  while (!waiting_.empty() && goes_before_youngest(*waiting_.front())) {
    Sequence& sequence = *waiting_.front();
    if (free_slots_.empty()) evict_youngest(now);
    move_to_running(sequence, sequence.waits_for_media() ? RequestState::kWaitingForMedia : RequestState::kPrefilling, now);
  }
}

/// It starts anew when there is a slot for it again, for which it waits in its old place.
void Scheduler::evict_youngest(TimePoint now) {
  std::unique_ptr<Sequence> sequence = std::move(running_.back());
  running_.pop_back();
  start_anew(*sequence);
  release_all(*sequence);
  if (sequence->state() != RequestState::kPreempted) note_preempted(*sequence, now);
  ++num_slotless_;
  ++num_lost_slots_;
  queue(std::move(sequence));
}

/// Whom the policy admits next; somebody waits.
Sequence& Scheduler::next_waiting() {
  if (options_.policy.policy != SchedulingPolicy::kFair) return *waiting_.front();
  asking_.clear();
  first_waiting_.assign(first_waiting_.size(), nullptr);
  for (const auto& sequence : waiting_) {
    const auto account = static_cast<std::size_t>(sequence->account);
    if (account >= first_waiting_.size()) first_waiting_.resize(account + 1);
    if (first_waiting_[account] != nullptr) continue;
    first_waiting_[account] = sequence.get();
    asking_.push_back(sequence->account);
  }
  admissions_.keep(asking_);
  while (true) {
    Sequence& first = *first_waiting_[static_cast<std::size_t>(admissions_.next())];
    if (admissions_.next_may_take(first.admission_cost)) return first;
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
    sequence.seniority = {.number = num_admitted_++};
  }
  return static_cast<std::size_t>(running_.insert(place_in(running_, sequence.seniority), std::move(moved)) - running_.begin());
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

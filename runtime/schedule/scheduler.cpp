#include "runtime/schedule/scheduler.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/schedule/sampling_params.h"
#include "runtime/schedule/token_grammar.h"

namespace ferry {
namespace {

constexpr int64_t kMaxCount = std::numeric_limits<int32_t>::max();  // keeps products of two options within int64

// What an account may take in its turn, under SchedulingPolicy::kFair, in prompts' tokens: some quanta, so that a step has rows
// of several accounts, and that who comes back soon has a turn. A prompt that is more is saved up for, before it is admitted.
constexpr int64_t kTurn = 256;

void require_range(const char* name, int64_t value, int64_t lowest) {
  if (value >= lowest && value <= kMaxCount) return;
  throw_invalid(std::string(name) + " is " + std::to_string(value) + "; allowed: " + std::to_string(lowest) + " to " +
                std::to_string(kMaxCount));
}

SchedulerOptions validated(SchedulerOptions options) {
  require_range("max_running", options.max_running, 1);
  require_range("max_waiting", options.max_waiting, 1);
  require_range("prefill_chunk", options.prefill_chunk, 1);
  if (options.prefill_chunk > kMaxPrefillQuantum && options.prefill_chunk % kMaxPrefillQuantum != 0) {
    throw_invalid("prefill_chunk is " + std::to_string(options.prefill_chunk) + "; allowed: 1 to 64, or a multiple of 64");
  }
  // At most max_running - 1 rows are decodes while a prefill runs or a slot is free: a quantum always remains.
  require_range("token_budget", options.token_budget, options.max_running + prefill_quantum(options.prefill_chunk));
  require_range("num_blocks", options.num_blocks, 1);
  require_range("num_swap_blocks", options.num_swap_blocks, 0);
  require_range("block_tokens", options.block_tokens, 1);
  require_range("max_context", options.max_context, 1);
  require_range("vocab_size", options.vocab_size, 1);
  require_range("max_drafts", options.max_drafts, 0);
  require_range("aging_tokens_per_s", options.policy.aging_tokens_per_s, 1);
  return options;
}

/// Returns whether a sequence got no token because it forbids all of them. Otherwise its logits are not what they should be.
bool is_own_fault(const Sequence& sequence) {
  return sequence.sampled.failure && sequence.sampled.failure->code() == ErrorCode::kInvalidArgument;
}

bool holds(std::span<const TokenId> ids, TokenId id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

/// The model has never seen these ids without a picture in their place, so its answer would mean nothing.
void refuse_placeholders(std::span<const TokenId> prompt, std::span<const NamedTokenId> placeholders) {
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    for (const NamedTokenId& placeholder : placeholders) {
      if (prompt[i] != placeholder.id) continue;
      throw_invalid("prompt[" + std::to_string(i) + "] is " + std::to_string(placeholder.id) + ", the " + placeholder.name +
                    " of config.json, and there is no picture or video in its place; allowed: text");
    }
  }
}

}  // namespace

int64_t prefill_quantum(int64_t prefill_chunk) { return std::min(prefill_chunk, kMaxPrefillQuantum); }

int64_t next_prefill_piece(int64_t num_prompt, int64_t num_computed, int64_t prefill_chunk, int64_t budget) {
  const int64_t quantum = prefill_quantum(prefill_chunk);
  FERRY_CHECK_LT(num_computed, num_prompt);
  FERRY_CHECK_EQ(num_computed % quantum, 0);
  const int64_t rest = num_prompt - num_computed;
  const int64_t room = std::min(prefill_chunk, budget);
  return room < rest ? room / quantum * quantum : rest;
}

int64_t prefix_unit_tokens(const SchedulerOptions& options) {
  return std::lcm(prefill_quantum(options.prefill_chunk), options.block_tokens);
}

int64_t sequence_capacity(const SchedulerOptions& options) {
  return std::min(options.max_context, options.num_blocks * options.block_tokens);
}

std::string allowed_prompt(const SchedulerOptions& options) {
  const int64_t capacity = sequence_capacity(options);
  return "at most " + std::to_string(capacity - 1) + ", so that one more fits the limit of " + std::to_string(capacity) +
         " (maximum context length " + std::to_string(options.max_context) + ", cache " +
         std::to_string(options.num_blocks * options.block_tokens) + " tokens" +
         (options.memory_for_more.empty() ? "" : "; " + options.memory_for_more) + ")";
}

void validate_request(const Request& request, const SchedulerOptions& options) {
  const auto num_prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t capacity = sequence_capacity(options);
  if (num_prompt == 0) throw_invalid("prompt is empty; allowed: at least one token");
  if (num_prompt >= capacity)
    throw_invalid("prompt is too long, it has " + std::to_string(num_prompt) + " tokens; allowed: " + allowed_prompt(options));
  const auto is_bad = [&](TokenId id) { return id < 0 || id >= options.vocab_size; };
  const auto bad = std::find_if(request.prompt.begin(), request.prompt.end(), is_bad);
  if (bad != request.prompt.end()) {
    throw_invalid("prompt[" + std::to_string(bad - request.prompt.begin()) + "] is " + std::to_string(*bad) +
                  "; allowed: token ids 0 to " + std::to_string(options.vocab_size - 1));
  }
  if (request.media == nullptr) refuse_placeholders(request.prompt, options.placeholders);
  if (request.priority != 0 && options.policy.policy != SchedulingPolicy::kPriority) {
    throw_invalid("priority is " + std::to_string(request.priority) + "; allowed: 0 under --policy " +
                  scheduling_policy_name(options.policy.policy) + ", any under priority");
  }
  validate_sampling(request.sampling);
  validate_sampling(request.sampling,
                    {.vocab_size = options.vocab_size,
                     .num_prompt = num_prompt,
                     .max_completion = std::min<int64_t>(request.sampling.max_tokens, capacity - num_prompt)});
}

Scheduler::Scheduler(SchedulerOptions options)
    : options_(validated(std::move(options))),
      blocks_(options_.num_blocks),
      swap_blocks_(options_.num_swap_blocks),
      admissions_(kTurn),
      rows_(kTurn) {
  const auto max_running = static_cast<std::size_t>(options_.max_running);
  free_slots_.reserve(max_running);
  for (int64_t slot = options_.max_running - 1; slot >= 0; --slot) free_slots_.push_back(static_cast<int32_t>(slot));
  running_.reserve(max_running);
  shares_.reserve(max_running);
  plan_.entries.reserve(max_running);
  is_counted_.resize(static_cast<std::size_t>(options_.num_blocks));
  if (options_.prefix_cache.is_on)
    prefix_cache_.emplace(options_.prefix_cache, prefix_unit_tokens(options_), options_.block_tokens, blocks_);
  if (options_.policy.decode_slo_s > 0) {
    chunk_control_.emplace(options_.policy.decode_slo_s, prefill_quantum(options_.prefill_chunk), options_.token_budget);
  }
}

Sequence* Scheduler::add(Request request, TimePoint arrival) {
  if (std::ssize(waiting_) + std::ssize(loading_) - num_slotless_ >= options_.max_waiting) return nullptr;

  const auto num_prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t room = sequence_capacity(options_) - num_prompt;
  FERRY_CHECK(num_prompt >= 1 && room >= 1) << "request not validated: " << num_prompt << " prompt tokens, room " << room;
  FERRY_CHECK_GE(request.sampling.max_tokens, 0);
  request.sampling.max_tokens = static_cast<int32_t>(std::min<int64_t>(request.sampling.max_tokens, room));

  auto sequence = std::make_unique<Sequence>();
  sequence->tokens = request.prompt;
  sequence->request = std::move(request);
  sequence->arrival = arrival;
  set_seniority(*sequence);
  return &queue(std::move(sequence));
}

void Scheduler::abort(Sequence& sequence) { sequence.abort_requested = true; }

const StepPlan& Scheduler::plan(TimePoint now) {
  FERRY_CHECK(!plan_is_open_) << "step " << plan_.step_idx << " was planned but not committed";
  ++plan_.step_idx;
  plan_.entries.clear();
  plan_.snapshots.clear();
  plan_.finished.clear();
  plan_.file_writes.clear();
  plan_.saved_blocks.clear();
  plan_.restored_blocks.clear();
  plan_.num_rows = plan_.num_prefill_tokens = plan_.num_decode_tokens = plan_.num_drafts = plan_.num_samples = 0;
  drop_expired(now);
  end_loads(now);
  admit_seniors(now);
  share_rows();
  if (share_blocks(now)) admit(now);
  add_entries();
  if (prefix_cache_ && prefix_cache_->has_file()) plan_.file_writes = prefix_cache_->take_writes();
  if (plan_.num_rows == 0) drop_file_writes();  // nobody will do them
  FERRY_CHECK_LE(plan_.num_rows, options_.token_budget);
  plan_is_open_ = plan_.num_rows > 0;
  FERRY_CHECK(plan_is_open_ || next_for_media() != nullptr || waits_for_file() || (running_.empty() && waiting_.empty()))
      << "open requests but nothing to compute";
  return plan_;
}

void Scheduler::commit(const StepPlan& plan, const StepChoices& choices, TimePoint now) {
  FERRY_CHECK_EQ(std::ssize(choices.num_tokens), plan.num_samples);
  if (plan.entries.empty()) return;
  FERRY_CHECK(plan_is_open_ && plan.step_idx == plan_.step_idx)
      << "plan of step " << plan.step_idx << ", now at " << plan_.step_idx;
  plan_is_open_ = false;
  feed_cache(plan, choices);
  std::size_t sample_idx = 0, first_token = 0;
  for (const StepEntry& entry : plan.entries) {
    Sequence& sequence = *entry.sequence;
    FERRY_CHECK_EQ(sequence.num_computed, entry.first_token);
    sequence.num_computed += entry.num_rows - entry.num_drafts;
    sequence.num_replayed = sequence.num_new = 0;
    sequence.drafts.clear();
    if (!entry.samples) {
      if (sequence.num_computed < sequence.max_length()) continue;
      retire(sequence, sequence.sampled.failure ? FinishReason::kError : FinishReason::kLength, now);  // was only scored
      continue;
    }
    const auto num_chosen = static_cast<std::size_t>(choices.num_tokens[sample_idx++]);
    FERRY_CHECK(num_chosen >= 1 && std::cmp_less_equal(num_chosen, entry.num_logits()))
        << num_chosen << " tokens from " << entry.num_logits() << " rows";
    if (sequence.state() == RequestState::kPrefilling) sequence.become(RequestState::kDecoding);
    sequence.num_replayed = static_cast<int64_t>(num_chosen) - 1;
    sequence.num_computed += sequence.num_replayed;
    append_tokens(sequence, choices.tokens.subspan(first_token, num_chosen), now);
    first_token += num_chosen;
  }
  FERRY_CHECK_EQ(first_token, choices.tokens.size());
  sweep();
}

void Scheduler::note_pairs(const Sequence& sequence, int64_t num_pairs) {
  if (prefix_cache_) prefix_cache_->note_pairs(sequence.cached, sequence.blocks, num_pairs);
}

void Scheduler::propose(Sequence& sequence, std::span<const TokenId> drafts) {
  FERRY_CHECK(!plan_is_open_) << "step " << plan_.step_idx << " is under way";
  FERRY_CHECK(sequence.state() == RequestState::kDecoding) << "request " << sequence.request.id;
  FERRY_CHECK_LE(std::ssize(drafts), options_.max_drafts);
  sequence.drafts.assign(drafts.begin(), drafts.end());
}

void Scheduler::finish(Sequence& sequence, FinishReason reason, TimePoint now, int64_t num_dropped) {
  FERRY_CHECK(reason != FinishReason::kNone);
  FERRY_CHECK(!plan_is_open_) << "step " << plan_.step_idx << " is under way";
  FERRY_CHECK(num_dropped == 0 || num_dropped < sequence.num_new) << num_dropped << " of " << sequence.num_new << " tokens";
  if (num_dropped > 0) {
    sequence.tokens.resize(sequence.tokens.size() - static_cast<std::size_t>(num_dropped));
    sequence.num_new -= num_dropped;
    sequence.ends_with_stop_id = false;
    sequence.own_stop_id.reset();
  }
  if (sequence.finish_reason != FinishReason::kNone) {
    sequence.finish_reason = reason;
    return;
  }
  retire(sequence, reason, now);
  sweep();
}

void Scheduler::finish_all(FinishReason reason, TimePoint now) {
  FERRY_CHECK(reason != FinishReason::kNone);
  if (std::exchange(plan_is_open_, false)) {
    for (const StateSnapshot& unsaved : plan_.snapshots) prefix_cache_->drop(unsaved.snapshot);
    drop_file_writes();
  }
  for (const auto& sequence : running_) retire(*sequence, reason, now);
  for (const auto& sequence : waiting_) retire(*sequence, reason, now);
  for (const auto& sequence : loading_) retire(*sequence, reason, now);
  sweep();
}

std::vector<std::unique_ptr<Sequence>> Scheduler::take_finished() { return std::exchange(finished_, {}); }

Sequence* Scheduler::next_for_media() const {
  const auto found =
      std::ranges::find_if(running_, [](const auto& sequence) { return sequence->state() == RequestState::kWaitingForMedia; });
  return found == running_.end() ? nullptr : found->get();
}

void Scheduler::give_media(Sequence& sequence, std::shared_ptr<const EmbeddedMedia> media) {
  FERRY_CHECK(!plan_is_open_) << "step " << plan_.step_idx << " is under way";
  FERRY_CHECK(media != nullptr && sequence.state() == RequestState::kWaitingForMedia) << "request " << sequence.request.id;
  sequence.media = std::move(media);
  sequence.become(RequestState::kPrefilling);
}

void Scheduler::note_step(const StepPlan& plan, double seconds) {
  if (prefix_cache_ && 2 * plan.num_prefill_tokens >= plan.num_rows)
    prefix_cache_->costs().add_prefill(plan.num_prefill_tokens, seconds);
  if (chunk_control_ && plan.num_decode_tokens > 0) chunk_control_->add_step(plan.num_prefill_tokens, seconds);
}

SchedulerLoad Scheduler::load() const {
  const int64_t num_preempted =
      std::ranges::count_if(running_, [](const auto& sequence) { return sequence->state() == RequestState::kPreempted; });
  return {.num_running = std::ssize(running_) - num_preempted,
          .num_waiting = std::ssize(waiting_) + std::ssize(loading_) + num_preempted,
          .num_preempted = num_preempted + num_slotless_,
          .num_preemptions = num_preemptions_,
          .num_lost_slots = num_lost_slots_,
          .num_accounts = accounts_.size(),
          .prefill_limit = chunk_control_ ? chunk_control_->num_rows() : 0,
          .num_used_blocks = blocks_.num_used(),
          .num_total_blocks = blocks_.num_total(),
          .num_used_swap_blocks = swap_blocks_.num_used(),
          .prefix_cache = prefix_cache_ ? prefix_cache_->load() : PrefixCacheLoad{}};
}

void Scheduler::check_cache() const {
  if (prefix_cache_) prefix_cache_->check();
}

void Scheduler::drop_expired(TimePoint now) {
  const auto drop = [&](const std::unique_ptr<Sequence>& sequence) {
    const bool is_late = sequence->request.deadline.has_value() && now >= *sequence->request.deadline;
    if (!sequence->abort_requested && !is_late) return;
    retire(*sequence, sequence->abort_requested ? FinishReason::kAborted : FinishReason::kDeadline, now);
    plan_.finished.push_back(sequence.get());
  };
  std::for_each(running_.begin(), running_.end(), drop);
  std::for_each(waiting_.begin(), waiting_.end(), drop);
  std::for_each(loading_.begin(), loading_.end(), drop);
  if (!plan_.finished.empty()) sweep();
}

/// Rows by the token budget alone: one for each that decodes and its drafts, then pieces of prompts.
void Scheduler::share_rows() {
  shares_.assign(running_.size(), {});
  const int64_t num_decodes = std::ranges::count_if(running_, [](const auto& sequence) { return sequence->decodes(); });
  int64_t budget = options_.token_budget - num_decodes;
  int64_t draft_room = std::min(budget - prefill_quantum(options_.prefill_chunk), kMaxDraftRows);
  for (std::size_t i = 0; i < running_.size(); ++i) {
    if (!running_[i]->decodes()) continue;
    shares_[i] = {.num_tokens = 1, .num_drafts = num_tried_drafts(*running_[i], draft_room)};
    draft_room -= shares_[i].num_drafts;
    budget -= shares_[i].num_drafts;
  }
  prefill_limit_ = num_decodes > 0 && chunk_control_ ? std::min(budget, chunk_control_->num_rows()) : budget;
  share_prefill_rows();
}

/// Pieces of prompts, oldest first; where accounts take turns, those that have blocks have theirs before.
void Scheduler::share_prefill_rows() {
  const auto asks = [](const Sequence& sequence) {
    return !sequence.decodes() && sequence.state() != RequestState::kWaitingForMedia;
  };
  for (const auto& sequence : running_) {
    if (sequence->state() == RequestState::kPreempted) break;  // behind it nobody may have blocks
    if (asks(*sequence) && may_begin(*sequence)) begin(*sequence);
  }
  const bool takes_turns = options_.policy.policy == SchedulingPolicy::kFair;
  int64_t budget = takes_turns ? take_turns(prefill_limit_) : prefill_limit_;
  for (std::size_t i = 0; i < running_.size(); ++i) {
    if (!asks(*running_[i]) || (takes_turns && running_[i]->state() != RequestState::kPreempted)) continue;
    // A later prompt's short end may use rows that are too few for this one: it delays nobody.
    shares_[i].num_tokens = next_piece(*running_[i], budget);
    budget -= shares_[i].num_tokens;
  }
}

/// Of what is known and not computed. Behind the prompt, where the recurrent form has the same bits for every cut, any.
int64_t Scheduler::next_piece(const Sequence& sequence, int64_t budget) const {
  if (sequence.in_prefill())
    return next_prefill_piece(sequence.num_prompt(), sequence.num_computed, options_.prefill_chunk, budget);
  return std::min({sequence.num_uncomputed(), options_.prefill_chunk, budget});
}

/// Each right draft is a token more, and the row of the last one chooses another.
int64_t Scheduler::num_tried_drafts(const Sequence& sequence, int64_t room) const {
  const int64_t num_left = sequence.request.sampling.max_tokens - sequence.num_generated();
  return std::max<int64_t>(std::min({std::ssize(sequence.drafts), num_left - 1, room}), 0);
}

/// Gives every share its blocks, oldest first. False if somebody has to wait for some: then nobody younger gets any.
bool Scheduler::share_blocks(TimePoint now) {
  bool has_all = true, is_behind_preempted = false;
  for (std::size_t i = 0; i < running_.size(); ++i) {
    if (running_[i]->state() == RequestState::kPreempted) {
      if (has_all && try_resume(i, now)) continue;
      shares_[i].num_tokens = shares_[i].num_drafts = 0;
      has_all = false;
      is_behind_preempted = true;
    } else if (is_behind_preempted && !running_[i]->blocks.empty()) {
      preempt(i, now);  // the one before it has moved ahead of it (renew_seniority)
    } else if (shares_[i].num_tokens > 0) {
      has_all = grant_blocks(i, has_all, now) && has_all;
    }
  }
  // Only now, because the engine saves blocks before it restores any: what is saved may not go where something is still read.
  for (const BlockCopy& copy : plan_.restored_blocks) swap_blocks_.release(std::span(&copy.from, 1));
  return has_all;
}

/// The blocks that a sequence needs for its share, if it `may_take` any: free ones, then those of the youngest behind it. The
/// share shrinks to what can be had; false if it did.
bool Scheduler::grant_blocks(std::size_t idx, bool may_take, TimePoint now) {
  Sequence& sequence = *running_[idx];
  const auto num_missing = [&] { return num_needed_blocks(sequence, shares_[idx]) - std::ssize(sequence.blocks); };
  if (num_missing() <= 0) return true;
  const int64_t wanted = shares_[idx].num_rows();
  if (!may_take || num_missing() > num_available()) {
    const int64_t num_reachable = may_take ? blocks_.num_total() - num_held_blocks(idx + 1) : 0;
    shrink(idx, std::ssize(sequence.blocks) + num_reachable);
    if (shares_[idx].num_tokens == 0) return false;
    preempt_behind(idx, num_missing(), now);
  }
  take_blocks(std::max<int64_t>(num_missing(), 0), sequence);
  return shares_[idx].num_rows() == wanted;
}

/// The youngest behind `idx` that hold blocks, until `num_wanted` can be had.
void Scheduler::preempt_behind(std::size_t idx, int64_t num_wanted, TimePoint now) {
  for (std::size_t i = running_.size() - 1; num_wanted > num_available(); --i) {
    FERRY_CHECK(i > idx) << "request " << running_[idx]->request.id << " needs " << num_wanted << " blocks";
    if (!running_[i]->blocks.empty()) preempt(i, now);
  }
}

/// To what `num_blocks` hold.
void Scheduler::shrink(std::size_t idx, int64_t num_blocks) {
  const Sequence& sequence = *running_[idx];
  Share& share = shares_[idx];
  const int64_t room = room_in(sequence, num_blocks);
  share.num_tokens = std::min(share.num_tokens, next_piece(sequence, std::min(room, share.num_tokens)));
  share.num_drafts = std::min(share.num_drafts, room - share.num_tokens);
}

/// Tokens that the sequence can compute if it has so many blocks.
int64_t Scheduler::room_in(const Sequence& sequence, int64_t num_blocks) const {
  const int64_t num_tokens = num_blocks * options_.block_tokens;
  const int64_t end = num_tokens >= sequence.max_length() ? sequence.max_length() : num_tokens - options_.max_drafts;
  return std::max<int64_t>(end - sequence.num_computed, 0);
}

/// Brings a preempted sequence's blocks back, if there is room for all that is known of it beside what all older ones may soon
/// need. Room is also what those behind it hold, which there are where it has moved ahead of them.
bool Scheduler::try_resume(std::size_t idx, TimePoint now) {
  Sequence& sequence = *running_[idx];
  Share& share = shares_[idx];
  if (share.is_preempted || share.num_tokens == 0) return false;
  const bool begins = may_begin(sequence);
  if (begins) begin(sequence);
  const Share all{.num_tokens = sequence.num_uncomputed(), .num_drafts = share.num_drafts};
  const int64_t num_shared = std::ssize(sequence.blocks);
  const int64_t num_wanted = num_needed_blocks(sequence, all) - num_shared + num_growth_blocks(idx);
  const auto behind = std::span(running_).subspan(idx + 1);
  const bool may_take = std::ranges::any_of(behind, [](const auto& other) { return !other->blocks.empty(); });
  if (num_wanted > (may_take ? blocks_.num_total() - num_held_blocks(idx + 1) : num_available())) {
    if (begins) undo_begin(sequence);
    return false;
  }
  preempt_behind(idx, num_wanted, now);
  if (num_shared > 0) share.num_tokens = next_piece(sequence, share.num_tokens);
  take_blocks(num_needed_blocks(sequence, share) - num_shared, sequence);
  for (std::size_t i = 0; i < sequence.saved_blocks.size(); ++i)
    plan_.restored_blocks.push_back({.from = sequence.saved_blocks[i], .to = sequence.blocks[i]});
  sequence.saved_blocks.clear();  // share_blocks releases them
  sequence.become(sequence.decodes() ? RequestState::kDecoding : RequestState::kPrefilling);
  return true;
}

/// Takes a sequence's blocks. It keeps its slot, which nobody could use: who has not arrived before it is not admitted now.
void Scheduler::preempt(std::size_t idx, TimePoint now) {
  Sequence& sequence = *running_[idx];
  shares_[idx] = {.is_preempted = true};
  const int64_t num_filled = num_blocks_of(sequence.num_computed);
  if (swap_blocks_.allocate(num_filled, sequence.saved_blocks)) {
    for (std::size_t i = 0; i < sequence.saved_blocks.size(); ++i)
      plan_.saved_blocks.push_back({.from = sequence.blocks[i], .to = sequence.saved_blocks[i]});
    sequence.cached.is_growing = false;  // its blocks will be others
  } else {
    start_anew(sequence);
  }
  blocks_.release(sequence.blocks);
  sequence.blocks.clear();
  note_preempted(sequence, now);
}

/// When it has blocks again: nothing of it is kept.
void Scheduler::start_anew(Sequence& sequence) {
  if (prefix_cache_) prefix_cache_->let_go_of_snapshot(sequence.cached);
  sequence.begins = true;
  sequence.num_computed = sequence.num_replayed = 0;
  sequence.drafts.clear();
}

void Scheduler::note_preempted(Sequence& sequence, TimePoint now) {
  sequence.preempted = now;
  ++sequence.num_preemptions;
  ++num_preemptions_;
  sequence.become(RequestState::kPreempted);
}

/// Admits who waits, strictly in the policy's order, while there are a slot, rows, and blocks for them beside what those that
/// run may soon need. Who has to wait for its media first needs a slot alone.
void Scheduler::admit(TimePoint now) {
  int64_t budget = options_.token_budget, prefill_budget = prefill_limit_;
  for (std::size_t i = 0; i < running_.size(); ++i) {
    budget -= shares_[i].num_rows();
    if (!running_[i]->decodes()) prefill_budget -= shares_[i].num_tokens;
  }
  budget = std::min(budget, prefill_budget);
  while (!waiting_.empty() && !free_slots_.empty()) {
    Sequence* const next = next_waiting();
    if (next == nullptr) return;
    Sequence& sequence = *next;
    const FileLook look = look_in_file(sequence, now);
    if (look == FileLook::kNoRoom) return;
    if (look == FileLook::kReading) continue;
    Share share;
    std::size_t idx = 0;
    if (!sequence.waits_for_media()) {
      begin(sequence);
      share.num_tokens = next_piece(sequence, budget);
      const int64_t num_missing = num_needed_blocks(sequence, share) - std::ssize(sequence.blocks);
      if (share.num_tokens == 0 || num_missing + num_growth_blocks(running_.size()) > num_available())
        return undo_begin(sequence);
      idx = move_to_running(sequence, RequestState::kPrefilling, now);
      take_blocks(num_missing, sequence);
    } else {
      idx = move_to_running(sequence, RequestState::kWaitingForMedia, now);
    }
    budget -= share.num_tokens;
    shares_.insert(shares_.begin() + static_cast<std::ptrdiff_t>(idx), share);
  }
}

/// Whether it has no rows yet, or starts anew.
bool Scheduler::may_begin(const Sequence& sequence) const {
  return sequence.begins && sequence.blocks.empty() && sequence.saved_blocks.empty();
}

/// With what others have computed of its prompt.
void Scheduler::begin(Sequence& sequence) {
  if (!prefix_cache_) return;
  sequence.cached = prefix_cache_->find(sequence.request, sequence.blocks);
  sequence.num_computed = sequence.cached.num_tokens;
  if (sequence.load && sequence.load->has_failed && sequence.cached.miss != CacheMiss::kNone)
    sequence.cached.miss = CacheMiss::kFile;
}

void Scheduler::undo_begin(Sequence& sequence) {
  if (!prefix_cache_) return;
  prefix_cache_->let_go_of_snapshot(sequence.cached);
  sequence.cached = {};
  sequence.num_computed = 0;
  blocks_.release(sequence.blocks);
  sequence.blocks.clear();
}

/// Free ones, and those that the prefix cache has to give up.
void Scheduler::take_blocks(int64_t count, Sequence& sequence) {
  if (prefix_cache_) prefix_cache_->make_room(count);
  FERRY_CHECK(blocks_.allocate(count, sequence.blocks)) << count << " blocks, " << blocks_.num_free() << " are free";
}

/// By the oldest `num_sequences`: all others are free, idle, or held by younger ones alone.
int64_t Scheduler::num_held_blocks(std::size_t num_sequences) {
  std::fill(is_counted_.begin(), is_counted_.end(), false);
  int64_t num_blocks = 0;
  for (const auto& sequence : std::span(running_).first(num_sequences)) {
    for (const int32_t block : sequence->blocks) {
      num_blocks += is_counted_[static_cast<std::size_t>(block)] ? 0 : 1;
      is_counted_[static_cast<std::size_t>(block)] = true;
    }
  }
  return num_blocks;
}

/// Whatever later steps append has its room from here on.
void Scheduler::take_slot(Sequence& sequence) {
  sequence.tokens.reserve(static_cast<std::size_t>(sequence.max_length()));
  sequence.drafts.reserve(static_cast<std::size_t>(options_.max_drafts));
  sequence.blocks.reserve(static_cast<std::size_t>(num_blocks_of(sequence.max_length())));
  sequence.slot = free_slots_.back();
  free_slots_.pop_back();
  if (sequence.request.call) ++sequence.request.call->num_running;
  if (options_.policy.policy == SchedulingPolicy::kFair) ++num_running_of_[static_cast<std::size_t>(sequence.account)];
}

int64_t Scheduler::num_blocks_of(int64_t num_tokens) const {
  return (num_tokens + options_.block_tokens - 1) / options_.block_tokens;
}

/// All in all, for the share's rows and for what is guessed behind them once they are computed.
int64_t Scheduler::num_needed_blocks(const Sequence& sequence, const Share& share) const {
  const int64_t end = sequence.num_computed + share.num_rows() + options_.max_drafts;
  return num_blocks_of(std::min(end, sequence.max_length()));
}

/// Blocks that the oldest `num_sequences` do not hold yet.
int64_t Scheduler::num_growth_blocks(std::size_t num_sequences) const {
  int64_t num_blocks = 0;
  for (const auto& sequence : std::span(running_).first(num_sequences)) num_blocks += num_growth_blocks_of(*sequence);
  return num_blocks;
}

/// For its prompt, its tokens and kGrowthTokens more.
int64_t Scheduler::num_growth_blocks_of(const Sequence& sequence) const {
  const int64_t end = std::min(std::ssize(sequence.tokens) + kGrowthTokens, sequence.max_length());
  return std::max<int64_t>(num_blocks_of(end) - std::ssize(sequence.blocks), 0);
}

void Scheduler::add_entries() {
  const auto add_if = [&](auto condition) {
    for (std::size_t i = 0; i < running_.size(); ++i) {
      if (shares_[i].num_tokens > 0 && condition(running_[i]->state())) add_entry(*running_[i], shares_[i]);
    }
  };
  add_if([](RequestState state) { return state == RequestState::kDecoding; });
  add_if([](RequestState state) { return state == RequestState::kPrefilling; });
}

void Scheduler::add_entry(Sequence& sequence, const Share& share) {
  const bool is_prefill = sequence.state() == RequestState::kPrefilling;
  const int64_t end = sequence.num_computed + share.num_tokens;
  const bool samples = end == std::ssize(sequence.tokens) && sequence.request.sampling.max_tokens > 0;
  FERRY_CHECK_LE(end, std::ssize(sequence.tokens));
  plan_.entries.push_back({.sequence = &sequence,
                           .first_row = plan_.num_rows,
                           .first_token = sequence.num_computed,
                           .num_rows = share.num_rows(),
                           .num_drafts = share.num_drafts,
                           .samples = samples,
                           .begins = sequence.begins,
                           .snapshot = sequence.cached.snapshot,
                           .num_replayed = sequence.num_replayed,
                           .is_decode = !sequence.in_prefill()});
  if (std::exchange(sequence.begins, false)) note_beginning(sequence);
  if (!plan_.entries.back().is_decode) add_snapshots(sequence, plan_.entries.back());
  plan_.num_rows += share.num_rows();
  (is_prefill ? plan_.num_prefill_tokens : plan_.num_decode_tokens) += share.num_tokens;
  plan_.num_drafts += share.num_drafts;
  plan_.num_samples += samples ? 1 : 0;
}

void Scheduler::note_beginning(Sequence& sequence) {
  if (sequence.num_generated() == 0) sequence.num_cached = sequence.cached.num_tokens;
  if (!prefix_cache_) return;
  prefix_cache_->count(sequence.request, sequence.cached);
  if (sequence.load) prefix_cache_->count_load(*sequence.load, sequence.cached.num_tokens);
  end_load(sequence);
  prefix_cache_->let_go_of_snapshot(sequence.cached);  // the engine reads it before the step writes any
}

/// What the entry's rows save on their way.
void Scheduler::add_snapshots(const Sequence& sequence, const StepEntry& entry) {
  if (!sequence.cached.is_growing) return;
  int64_t previous = sequence.cached.num_tokens;
  for (const SnapshotPlace& place : sequence.cached.places) {
    if (place.num_tokens > entry.first_token + entry.num_rows) return;
    if (place.num_tokens > entry.first_token) {
      const int32_t snapshot = prefix_cache_->reserve(place, previous);
      if (snapshot != kNoSnapshot)
        plan_.snapshots.push_back({.entry = plan_.entries.size() - 1, .num_tokens = place.num_tokens, .snapshot = snapshot});
    }
    previous = place.num_tokens;
  }
}

/// With what the plan's rows have computed, but for those of entries that failed.
void Scheduler::feed_cache(const StepPlan& plan, const StepChoices& choices) {
  if (!prefix_cache_) return;
  std::size_t sample_idx = 0, end = 0;
  auto saved = plan.snapshots.begin();
  for (std::size_t e = 0; e < plan.entries.size(); ++e) {
    const StepEntry& entry = plan.entries[e];
    Sequence& sequence = *entry.sequence;
    if (entry.samples) end += static_cast<std::size_t>(choices.num_tokens[sample_idx++]);
    FERRY_CHECK_LE(end, choices.tokens.size());
    const bool has_failed = entry.samples && end > 0 && choices.tokens[end - 1] == kNoToken;
    if (has_failed && !entry.is_decode && !is_own_fault(sequence)) prefix_cache_->distrust(sequence.request);
    if (!has_failed && !entry.is_decode)
      prefix_cache_->extend(sequence.request, sequence.cached, sequence.blocks, entry.first_token + entry.num_rows);
    for (; saved != plan.snapshots.end() && saved->entry == e; ++saved) {
      if (has_failed) {
        prefix_cache_->drop(saved->snapshot);
      } else {
        prefix_cache_->keep(saved->snapshot, sequence.cached, saved->num_tokens);
      }
    }
  }
}

/// Until the sequence ends.
void Scheduler::append_tokens(Sequence& sequence, std::span<const TokenId> tokens, TimePoint now) {
  for (const TokenId& token : tokens) {
    append_token(sequence, token, now);
    if (sequence.finish_reason != FinishReason::kNone) return;
    const FinishReason reason = reason_to_end(sequence, &tokens.back() - &token);
    if (reason != FinishReason::kNone) return retire(sequence, reason, now);
  }
}

void Scheduler::append_token(Sequence& sequence, TokenId token, TimePoint now) {
  if (token == kNoToken) return retire(sequence, FinishReason::kError, now);
  FERRY_CHECK(token >= 0 && token < options_.vocab_size) << "sampled id " << token << " of " << options_.vocab_size;
  const SamplingParams& sampling = sequence.request.sampling;
  sequence.tokens.push_back(token);
  ++sequence.num_new;
  if (!sequence.first_token.has_value()) sequence.first_token = now;
  const bool is_checkpoints = !sampling.ignore_eos && holds(options_.stop_token_ids, token);
  if (!is_checkpoints && holds(sampling.stop_token_ids, token)) sequence.own_stop_id = token;
  sequence.ends_with_stop_id = is_checkpoints || sequence.own_stop_id;
}

/// Behind the token that it got last, when `num_behind` more were chosen with it. Its grammar has taken in all of them.
FinishReason Scheduler::reason_to_end(const Sequence& sequence, int64_t num_behind) const {
  const TokenGrammar* grammar = sequence.request.grammar.get();
  const bool is_complete = grammar != nullptr && num_behind == 0 && grammar->is_terminated();
  if (sequence.ends_with_stop_id || is_complete) return FinishReason::kStop;
  return sequence.num_generated() >= sequence.request.sampling.max_tokens ? FinishReason::kLength : FinishReason::kNone;
}

/// Ends `sequence` and frees its memory; sweep() then moves it out of its list.
void Scheduler::retire(Sequence& sequence, FinishReason reason, TimePoint now) {
  FERRY_CHECK(sequence.finish_reason == FinishReason::kNone) << "request " << sequence.request.id << " ended twice";
  sequence.finish_reason = reason;
  sequence.finished = now;
  if (options_.policy.policy == SchedulingPolicy::kFair) accounts_.leave(sequence.request.account);
  if (sequence.slot < 0 && sequence.state() == RequestState::kPreempted) --num_slotless_;
  sequence.become(RequestState::kFinished);
  end_load(sequence);
  if (sequence.slot >= 0) release_all(sequence);
}

void Scheduler::release_all(Sequence& sequence) {
  if (prefix_cache_) prefix_cache_->let_go_of_snapshot(sequence.cached);
  blocks_.release(sequence.blocks);
  sequence.blocks.clear();
  swap_blocks_.release(sequence.saved_blocks);
  sequence.saved_blocks.clear();
  free_slots_.push_back(sequence.slot);
  sequence.slot = -1;
  if (sequence.request.call) --sequence.request.call->num_running;
  if (options_.policy.policy == SchedulingPolicy::kFair) --num_running_of_[static_cast<std::size_t>(sequence.account)];
}

void Scheduler::sweep() {
  const auto move_ended = [&](auto& sequences) {
    auto kept = sequences.begin();
    for (auto& sequence : sequences) {
      if (sequence->finish_reason != FinishReason::kNone) {
        finished_.push_back(std::move(sequence));
      } else {
        if (&*kept != &sequence) *kept = std::move(sequence);
        ++kept;
      }
    }
    sequences.erase(kept, sequences.end());
  };
  const std::size_t num_running = running_.size();
  move_ended(running_);
  move_ended(waiting_);
  move_ended(loading_);
  if (running_.size() != num_running) renew_seniority();
}

}  // namespace ferry

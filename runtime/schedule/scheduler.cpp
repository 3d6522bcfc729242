#include "runtime/schedule/scheduler.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/schedule/sampler.h"

namespace ferry {
namespace {

constexpr int64_t kMaxCount = std::numeric_limits<int32_t>::max();  // keeps products of two options within int64

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
  require_range("block_tokens", options.block_tokens, 1);
  require_range("max_context", options.max_context, 1);
  require_range("vocab_size", options.vocab_size, 1);
  require_range("max_drafts", options.max_drafts, 0);
  return options;
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

int64_t sequence_capacity(const SchedulerOptions& options) {
  return std::min(options.max_context, options.num_blocks * options.block_tokens);
}

void validate_request(const Request& request, const SchedulerOptions& options) {
  const auto num_prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t capacity = sequence_capacity(options);
  if (num_prompt == 0) throw_invalid("prompt is empty; allowed: at least one token");
  if (num_prompt >= capacity) {
    throw_invalid("prompt has " + std::to_string(num_prompt) + " tokens; allowed: at most " + std::to_string(capacity - 1) +
                  ", so that one more fits the limit of " + std::to_string(capacity) + " (context " +
                  std::to_string(options.max_context) + ", cache " + std::to_string(options.num_blocks * options.block_tokens) +
                  " tokens)");
  }
  const auto is_bad = [&](TokenId id) { return id < 0 || id >= options.vocab_size; };
  const auto require_ids = [&](const char* name, const std::vector<TokenId>& ids) {
    const auto bad = std::find_if(ids.begin(), ids.end(), is_bad);
    if (bad == ids.end()) return;
    throw_invalid(std::string(name) + "[" + std::to_string(bad - ids.begin()) + "] is " + std::to_string(*bad) +
                  "; allowed: token ids 0 to " + std::to_string(options.vocab_size - 1));
  };
  require_ids("prompt", request.prompt);
  if (request.media == nullptr) refuse_placeholders(request.prompt, options.placeholders);
  validate_sampling(request.sampling);
  require_ids("stop_token_ids", request.sampling.stop_token_ids);
}

Scheduler::Scheduler(SchedulerOptions options) : options_(validated(std::move(options))), blocks_(options_.num_blocks) {
  const auto max_running = static_cast<std::size_t>(options_.max_running);
  free_slots_.reserve(max_running);
  for (int64_t slot = options_.max_running - 1; slot >= 0; --slot) free_slots_.push_back(static_cast<int32_t>(slot));
  running_.reserve(max_running);
  plan_.entries.reserve(max_running);
}

Sequence* Scheduler::add(Request request, TimePoint arrival) {
  if (std::ssize(waiting_) >= options_.max_waiting) return nullptr;

  const auto num_prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t room = sequence_capacity(options_) - num_prompt;
  FERRY_CHECK(num_prompt >= 1 && room >= 1) << "request not validated: " << num_prompt << " prompt tokens, room " << room;
  FERRY_CHECK_GE(request.sampling.max_tokens, 1);
  request.sampling.max_tokens = static_cast<int32_t>(std::min<int64_t>(request.sampling.max_tokens, room));

  auto sequence = std::make_unique<Sequence>();
  sequence->tokens = request.prompt;
  sequence->request = std::move(request);
  sequence->arrival = arrival;
  waiting_.push_back(std::move(sequence));
  return waiting_.back().get();
}

void Scheduler::abort(Sequence& sequence) { sequence.abort_requested = true; }

const StepPlan& Scheduler::plan(TimePoint now) {
  FERRY_CHECK(!plan_is_open_) << "step " << plan_.step_idx << " was planned but not committed";
  ++plan_.step_idx;
  plan_.entries.clear();
  plan_.finished.clear();
  plan_.num_rows = plan_.num_prefill_tokens = plan_.num_decode_tokens = plan_.num_drafts = plan_.num_samples = 0;
  drop_expired(now);
  plan_decodes();
  plan_prefills(now);
  FERRY_CHECK_LE(plan_.num_rows, options_.token_budget);
  plan_is_open_ = plan_.num_rows > 0;
  FERRY_CHECK(plan_is_open_ || next_for_media() != nullptr || (running_.empty() && waiting_.empty()))
      << "open requests but nothing to compute";
  return plan_;
}

void Scheduler::commit(const StepPlan& plan, const StepChoices& choices, TimePoint now) {
  FERRY_CHECK_EQ(std::ssize(choices.num_tokens), plan.num_samples);
  if (plan.entries.empty()) return;
  FERRY_CHECK(plan_is_open_ && plan.step_idx == plan_.step_idx)
      << "plan of step " << plan.step_idx << ", now at " << plan_.step_idx;
  plan_is_open_ = false;
  std::size_t sample_idx = 0, first_token = 0;
  for (const StepEntry& entry : plan.entries) {
    Sequence& sequence = *entry.sequence;
    FERRY_CHECK_EQ(sequence.num_computed, entry.first_token);
    sequence.num_computed += entry.num_rows - entry.num_drafts;
    sequence.num_replayed = sequence.num_new = 0;
    sequence.drafts.clear();
    if (!entry.samples) continue;
    const auto num_chosen = static_cast<std::size_t>(choices.num_tokens[sample_idx++]);
    FERRY_CHECK(num_chosen >= 1 && std::cmp_less_equal(num_chosen, entry.num_logits()))
        << num_chosen << " tokens from " << entry.num_logits() << " rows";
    sequence.num_replayed = static_cast<int64_t>(num_chosen) - 1;
    sequence.num_computed += sequence.num_replayed;
    append_tokens(sequence, choices.tokens.subspan(first_token, num_chosen), now);
    first_token += num_chosen;
  }
  FERRY_CHECK_EQ(first_token, choices.tokens.size());
  sweep();
}

void Scheduler::propose(Sequence& sequence, std::span<const TokenId> drafts) {
  FERRY_CHECK(!plan_is_open_) << "step " << plan_.step_idx << " is under way";
  FERRY_CHECK(sequence.finish_reason == FinishReason::kNone && !sequence.in_prefill()) << "request " << sequence.request.id;
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
  plan_is_open_ = false;
  for (const auto& sequence : running_) retire(*sequence, reason, now);
  for (const auto& sequence : waiting_) retire(*sequence, reason, now);
  sweep();
}

std::vector<std::unique_ptr<Sequence>> Scheduler::take_finished() { return std::exchange(finished_, {}); }

Sequence* Scheduler::next_for_media() const {
  const auto found = std::ranges::find_if(running_, [](const auto& sequence) { return sequence->waits_for_media(); });
  return found == running_.end() ? nullptr : found->get();
}

void Scheduler::give_media(Sequence& sequence, std::shared_ptr<const EmbeddedMedia> media) {
  FERRY_CHECK(!plan_is_open_) << "step " << plan_.step_idx << " is under way";
  FERRY_CHECK(media != nullptr && sequence.waits_for_media()) << "request " << sequence.request.id;
  sequence.media = std::move(media);
}

SchedulerLoad Scheduler::load() const {
  return {.num_running = std::ssize(running_),
          .num_waiting = std::ssize(waiting_),
          .num_used_blocks = blocks_.num_used(),
          .num_total_blocks = blocks_.num_total()};
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
  if (!plan_.finished.empty()) sweep();
}

void Scheduler::plan_decodes() {
  const auto is_decoding = [](const auto& sequence) { return !sequence->in_prefill(); };
  const int64_t num_decodes = std::ranges::count_if(running_, is_decoding);
  const int64_t num_free = options_.token_budget - num_decodes - prefill_quantum(options_.prefill_chunk);
  int64_t room = std::min(num_free, kMaxDraftRows);
  for (const auto& sequence : running_) {
    if (!is_decoding(sequence)) continue;
    const int64_t num_drafts = num_tried_drafts(*sequence, room);
    room -= num_drafts;
    add_entry(*sequence, 1, num_drafts);
  }
}

/// Each right draft is a token more, and the row of the last one chooses another.
int64_t Scheduler::num_tried_drafts(const Sequence& sequence, int64_t room) const {
  const int64_t num_left = sequence.request.sampling.max_tokens - sequence.num_generated();
  return std::max<int64_t>(std::min({std::ssize(sequence.drafts), num_left - 1, room}), 0);
}

void Scheduler::plan_prefills(TimePoint now) {
  const auto next_piece = [&](const Sequence& sequence) {
    return next_prefill_piece(sequence.num_prompt(), sequence.num_computed, options_.prefill_chunk,
                              options_.token_budget - plan_.num_rows);
  };
  for (const auto& sequence : running_) {
    if (!sequence->in_prefill() || sequence->waits_for_media()) continue;
    // A later prompt's short end may use rows that are too few for this one: it delays nobody.
    if (const int64_t num_tokens = next_piece(*sequence); num_tokens > 0) add_entry(*sequence, num_tokens, 0);
  }
  while (!waiting_.empty()) {
    const bool needs_rows = !waiting_.front()->waits_for_media();
    const int64_t num_tokens = next_piece(*waiting_.front());
    if ((needs_rows && num_tokens == 0) || !try_admit(*waiting_.front())) break;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    running_.back()->first_scheduled = now;
    if (needs_rows) add_entry(*running_.back(), num_tokens, 0);
  }
}

bool Scheduler::try_admit(Sequence& sequence) {
  if (free_slots_.empty()) return false;
  const int64_t num_tokens = sequence.num_prompt() + sequence.request.sampling.max_tokens;
  if (!blocks_.allocate((num_tokens + options_.block_tokens - 1) / options_.block_tokens, sequence.blocks)) return false;
  sequence.tokens.reserve(static_cast<std::size_t>(num_tokens));
  sequence.drafts.reserve(static_cast<std::size_t>(options_.max_drafts));
  sequence.slot = free_slots_.back();
  free_slots_.pop_back();
  return true;
}

void Scheduler::add_entry(Sequence& sequence, int64_t num_tokens, int64_t num_drafts) {
  const bool is_prefill = sequence.in_prefill();
  const int64_t end = sequence.num_computed + num_tokens;
  const bool samples = end == std::ssize(sequence.tokens);
  FERRY_CHECK_LE(end, std::ssize(sequence.tokens));
  plan_.entries.push_back({.sequence = &sequence,
                           .first_row = plan_.num_rows,
                           .first_token = sequence.num_computed,
                           .num_rows = num_tokens + num_drafts,
                           .num_drafts = num_drafts,
                           .samples = samples,
                           .resets_state = sequence.num_computed == 0,
                           .num_replayed = sequence.num_replayed,
                           .is_decode = !is_prefill});
  plan_.num_rows += num_tokens + num_drafts;
  (is_prefill ? plan_.num_prefill_tokens : plan_.num_decode_tokens) += num_tokens;
  plan_.num_drafts += num_drafts;
  plan_.num_samples += samples ? 1 : 0;
}

/// Until the sequence ends.
void Scheduler::append_tokens(Sequence& sequence, std::span<const TokenId> tokens, TimePoint now) {
  for (const TokenId token : tokens) {
    append_token(sequence, token, now);
    if (sequence.finish_reason != FinishReason::kNone) return;
  }
}

void Scheduler::append_token(Sequence& sequence, TokenId token, TimePoint now) {
  if (token == kNoToken) return retire(sequence, FinishReason::kError, now);
  FERRY_CHECK(token >= 0 && token < options_.vocab_size) << "sampled id " << token << " of " << options_.vocab_size;
  const SamplingParams& sampling = sequence.request.sampling;
  sequence.tokens.push_back(token);
  ++sequence.num_new;
  if (!sequence.first_token.has_value()) sequence.first_token = now;
  sequence.ends_with_stop_id =
      (!sampling.ignore_eos && holds(options_.stop_token_ids, token)) || holds(sampling.stop_token_ids, token);
  if (sequence.ends_with_stop_id) {
    retire(sequence, FinishReason::kStop, now);
  } else if (sequence.num_generated() >= sampling.max_tokens) {
    retire(sequence, FinishReason::kLength, now);
  }
}

/// Ends `sequence` and frees its memory; sweep() then moves it out of its list.
void Scheduler::retire(Sequence& sequence, FinishReason reason, TimePoint now) {
  FERRY_CHECK(sequence.finish_reason == FinishReason::kNone) << "request " << sequence.request.id << " ended twice";
  sequence.finish_reason = reason;
  sequence.finished = now;
  if (sequence.slot < 0) return;
  blocks_.release(sequence.blocks);
  sequence.blocks.clear();
  free_slots_.push_back(sequence.slot);
  sequence.slot = -1;
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
  move_ended(running_);
  move_ended(waiting_);
}

}  // namespace ferry

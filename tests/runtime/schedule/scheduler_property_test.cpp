#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>

#include "runtime/model/step_input.h"
#include "runtime/schedule/scheduler.h"
#include "tests/support/draws.h"

// Random streams of requests, aborts, deadlines and stops against a scheduler with random limits and policies, KV caches too
// small for all of them among these, with a prefix cache and without. After every call the promises of scheduler.h must hold,
// and every answer is the one that its request gets alone.

namespace ferry {
namespace {

using std::chrono::milliseconds;
using TimePoint = Scheduler::TimePoint;

constexpr TokenId kStopId = 3;
constexpr TokenId kMessageStart = 7;
constexpr int64_t kMaxSteps = 20'000;

/// A model whose every token depends on all tokens before it and on the form in which each was computed.
class FakeModel {
 public:
  static constexpr int64_t kVocab = 50;

  static uint64_t after(uint64_t state, TokenId token, bool is_decode) {
    state = (state ^ static_cast<uint64_t>(2 * token + (is_decode ? 1 : 0) + 3)) * 0x9e3779b97f4a7c15U;
    return state ^ state >> 29U;
  }
  static TokenId choice(uint64_t state) { return static_cast<TokenId>((state >> 20U) % kVocab); }

  /// What a request gets alone: until a stop id or `max_tokens`.
  static std::vector<TokenId> answer(const std::vector<TokenId>& prompt, int64_t max_tokens) {
    uint64_t state = 0;
    for (const TokenId token : prompt) state = after(state, token, false);
    std::vector<TokenId> tokens;
    while (std::ssize(tokens) < max_tokens) {
      tokens.push_back(choice(state));
      if (tokens.back() == kStopId) break;
      state = after(state, tokens.back(), true);
    }
    return tokens;
  }
};

/// Caches of that model: states that take tokens in and hold drafts back, their snapshots, by block what follows from each
/// token and all before it, and the swap space of these.
class FakeEngine {
 public:
  explicit FakeEngine(const SchedulerOptions& options)
      : block_tokens_(options.block_tokens),
        has_states_(options.prefix_cache.has_states),
        cache_(static_cast<std::size_t>(options.num_blocks * options.block_tokens), 1),
        swap_(static_cast<std::size_t>(options.num_swap_blocks * options.block_tokens), 1),
        slots_(static_cast<std::size_t>(options.max_running)),
        snapshots_(static_cast<std::size_t>(options.prefix_cache.num_snapshots)) {}

  /// The choices of a plan's entries that sample.
  void run(const StepPlan& plan) {
    tokens.clear();
    counts.clear();
    write_blocks(plan.file_writes);
    for (const BlockCopy& copy : plan.saved_blocks) move(cache_, copy.from, swap_, copy.to);
    for (const BlockCopy& copy : plan.restored_blocks) move(swap_, copy.from, cache_, copy.to);
    for (const StepEntry& entry : plan.entries) {
      if (entry.begins) begin(entry);
    }
    write_states(plan.file_writes);
    for (std::size_t e = 0; e < plan.entries.size(); ++e) run(plan, e);
  }

  /// What a page of the file holds, in the first one of a record: who wrote it, and what.
  struct Page {
    FileRecordId record;
    std::vector<uint64_t> values;
  };
  void write_blocks(std::span<const FileWrite> writes) {
    for (const FileWrite& write : writes) {
      if (write.snapshot >= 0) continue;
      std::vector<uint64_t> values;
      for (const int32_t block : write.blocks) {
        const auto first = cache_.begin() + block * block_tokens_;
        values.insert(values.end(), first, first + block_tokens_);
      }
      this->write(write, values);
    }
  }
  void write_states(std::span<const FileWrite> writes) {
    for (const FileWrite& write : writes) {
      if (write.snapshot >= 0) this->write(write, {std::exchange(snapshots_.at(static_cast<std::size_t>(write.snapshot)), 77)});
    }
  }
  /// Nothing if its pages do not hold it.
  std::optional<std::vector<uint64_t>> read(const FileRead& read) {
    for (const int32_t page : read.pages) {
      if (file_[page].record != read.record) return std::nullopt;
    }
    return file_[read.pages.front()].values;
  }
  void put(const FileTarget& target, const std::vector<uint64_t>& values) {
    if (target.snapshot >= 0) snapshots_.at(static_cast<std::size_t>(target.snapshot)) = values.at(0);
    for (std::size_t i = 0; i < target.blocks.size(); ++i)
      std::copy_n(values.begin() + static_cast<int64_t>(i) * block_tokens_, block_tokens_,
                  cache_.begin() + target.blocks[i] * block_tokens_);
  }

  std::vector<TokenId> tokens;
  std::vector<int32_t> counts;
  std::set<std::pair<int32_t, uint32_t>> lost_writes;  // which the file is too busy for

 private:
  struct Slot {
    uint64_t state = 0;
    std::vector<TokenId> held;
  };

  void write(const FileWrite& write, const std::vector<uint64_t>& values) {
    const bool is_lost = lost_writes.contains({write.record.number, write.record.serial});
    for (const int32_t page : write.pages) file_[page] = {.record = is_lost ? FileRecordId{} : write.record, .values = values};
  }
  void move(const std::vector<uint64_t>& from, int32_t from_block, std::vector<uint64_t>& to, int32_t to_block) const {
    std::copy_n(from.begin() + from_block * block_tokens_, block_tokens_, to.begin() + to_block * block_tokens_);
  }
  uint64_t& cached(const Sequence& sequence, int64_t at) {
    const int32_t block = sequence.blocks.at(static_cast<std::size_t>(at / block_tokens_));
    return cache_.at(static_cast<std::size_t>(block * block_tokens_ + at % block_tokens_));
  }
  /// A model without states has all that it needs in its cache.
  void begin(const StepEntry& entry) {
    ASSERT_EQ(entry.snapshot != kNoSnapshot, has_states_ && entry.first_token > 0);
    uint64_t state = 0;
    if (entry.snapshot != kNoSnapshot) {
      state = snapshots_.at(static_cast<std::size_t>(entry.snapshot));
    } else if (entry.first_token > 0) {
      state = cached(*entry.sequence, entry.first_token - 1);
    }
    slots_.at(static_cast<std::size_t>(entry.sequence->slot)) = {.state = state, .held = {}};
  }
  /// All tokens before it are in the cache, each in the form that it has alone.
  void expect_past(const StepEntry& entry) {
    const Sequence& sequence = *entry.sequence;
    uint64_t state = 0;
    for (int64_t i = 0; i < entry.first_token; ++i) {
      state = FakeModel::after(state, sequence.tokens[static_cast<std::size_t>(i)], i >= sequence.num_prompt());
      ASSERT_EQ(cached(sequence, i), state) << "of " << sequence.request.id << " at " << i;
    }
  }
  void run(const StepPlan& plan, std::size_t entry_idx) {
    const StepEntry& entry = plan.entries[entry_idx];
    const Sequence& sequence = *entry.sequence;
    Slot& slot = slots_.at(static_cast<std::size_t>(sequence.slot));
    for (int64_t i = 0; i < entry.num_replayed; ++i)
      slot.state = FakeModel::after(slot.state, slot.held.at(static_cast<std::size_t>(i)), true);
    slot.held.assign(sequence.drafts.begin(), sequence.drafts.begin() + entry.num_drafts);
    expect_past(entry);
    const int64_t end = entry.first_token + entry.num_rows - entry.num_drafts;
    for (int64_t i = entry.first_token; i < end; ++i) {
      slot.state = FakeModel::after(slot.state, sequence.tokens[static_cast<std::size_t>(i)], entry.is_decode);
      cached(sequence, i) = slot.state;
      for (const StateSnapshot& saved : plan.snapshots) {
        if (saved.entry == entry_idx && saved.num_tokens == i + 1)
          snapshots_.at(static_cast<std::size_t>(saved.snapshot)) = slot.state;
      }
    }
    uint64_t state = slot.state;
    for (int64_t i = 0; i < entry.num_drafts; ++i) {
      state = FakeModel::after(state, slot.held[static_cast<std::size_t>(i)], true);
      cached(sequence, end + i) = state;
    }
    if (entry.samples) choose(slot);
  }
  void choose(const Slot& slot) {
    uint64_t state = slot.state;
    tokens.push_back(FakeModel::choice(state));
    counts.push_back(1);
    for (std::size_t i = 0; i < slot.held.size() && tokens.back() == slot.held[i]; ++i) {
      state = FakeModel::after(state, slot.held[i], true);
      tokens.push_back(FakeModel::choice(state));
      ++counts.back();
    }
  }

  const int64_t block_tokens_;
  const bool has_states_;
  std::vector<uint64_t> cache_, swap_;  // [blocks, block_tokens]
  std::vector<Slot> slots_;
  std::vector<uint64_t> snapshots_;
  std::map<int32_t, Page> file_;
};

/// How often the streams of a test came to what is rare.
struct Rarities {
  int64_t lost_slots = 0, limited_steps = 0, waits_for_equals = 0;
  int64_t preemptions = 0, saved = 0, restored = 0, recomputed = 0, held_while_preempted = 0, ended_while_preempted = 0;
  int64_t cached_tokens = 0, shared_blocks = 0, begun_anew_with_some = 0, evicted_units = 0, evicted_snapshots = 0;
  int64_t file_hits = 0, file_tokens = 0;
  std::array<int64_t, kNumFileDrops> file_drops{};
  std::array<int64_t, kNumCacheMisses> misses{};
};

/// How a prompt was computed, as far as rounding is concerned: the lengths of the pieces of the chunk form.
void append_form(std::string& form, int64_t num_tokens, int64_t chunk) {
  for (; num_tokens > 0; num_tokens -= chunk) form += std::to_string(std::min(num_tokens, chunk)) + " ";
}

class Stream {
 public:
  Stream(uint32_t seed, Rarities& rarities)
      : rng_(seed),
        is_sharing_(pick(0, 1) == 0),
        scheduler_(random_options()),
        engine_(scheduler_.options()),
        rarities_(rarities) {}

  void run() {
    const int64_t num_requests = pick(1, 60);
    for (int64_t step = 0; num_sent_ < num_requests || !open_.empty(); ++step) {
      ASSERT_LT(step, kMaxSteps) << "open requests never finish";
      now_ += milliseconds(pick(0, 3));
      for (int64_t i = pick(0, 3); i > 0 && num_sent_ < num_requests; --i) send();
      if (pick(0, 9) == 0) abort_one();
      run_step();
      if (testing::Test::HasFatalFailure()) return;
    }
    EXPECT_EQ(scheduler_.load().num_used_blocks, 0);
    EXPECT_EQ(scheduler_.load().num_used_swap_blocks, 0);
    EXPECT_EQ(scheduler_.load().num_running, 0);
    EXPECT_EQ(scheduler_.load().num_waiting, 0);
    EXPECT_TRUE(scheduler_.plan(now_).entries.empty());
    if (scheduler_.options().prefix_cache.file.num_pages == 0) expect_order();  // others pass who waits for the file
    const PrefixCacheLoad cache = scheduler_.load().prefix_cache;
    rarities_.cached_tokens += cache.num_cached_tokens;
    rarities_.evicted_units += cache.num_evicted_units;
    rarities_.evicted_snapshots += cache.num_evicted_snapshots;
    rarities_.file_hits += cache.num_file_hits;
    rarities_.file_tokens += cache.num_file_tokens;
    for (std::size_t i = 0; i < cache.file_drops.size(); ++i) rarities_.file_drops[i] += cache.file_drops[i];
    for (std::size_t i = 0; i < cache.misses.size(); ++i) rarities_.misses[i] += cache.misses[i];
    rarities_.preemptions += scheduler_.load().num_preemptions;
    rarities_.lost_slots += scheduler_.load().num_lost_slots;
    EXPECT_EQ(scheduler_.load().num_accounts, 0);
  }

 private:
  struct Open {
    Sequence* sequence = nullptr;
    int64_t arrival_idx = 0;
    int64_t num_prompt = 0;
    int32_t max_tokens = 0;
    bool must_drop = false;
    std::optional<TimePoint> deadline;
    bool may_end_early = false;  // finish() was called
    std::string form;
  };

  int64_t pick(int64_t lowest, int64_t highest) { return std::uniform_int_distribution<int64_t>(lowest, highest)(rng_); }

  SchedulerOptions random_options() {
    SchedulerOptions options;
    options.max_running = pick(1, 9);
    options.max_waiting = pick(1, 12);
    options.prefill_chunk = pick(0, 1) == 0 ? pick(1, 64) : 64 * pick(1, 5);
    options.token_budget = options.max_running + prefill_quantum(options.prefill_chunk) + pick(0, 1) * pick(0, 300);
    options.block_tokens = pick(1, 33);
    options.num_blocks = pick(2, 60);
    options.num_swap_blocks = pick(0, 2) == 0 ? 0 : pick(0, 90);
    options.max_context = pick(2, 700);
    options.vocab_size = FakeModel::kVocab;
    options.max_drafts = pick(0, 4);
    options.stop_token_ids = {kStopId};
    options.policy = random_policy();
    if (!is_sharing_) return options;
    options.block_tokens = int64_t{1} << pick(0, 4);
    options.num_blocks = 300 / options.block_tokens + pick(0, 40);
    if (pick(0, 2) == 0) options.num_swap_blocks = 0;
    options.prefill_chunk = int64_t{1} << pick(2, 8);
    options.token_budget = options.max_running + prefill_quantum(options.prefill_chunk) + pick(0, 1) * pick(0, 300);
    options.prefix_cache.is_on = true;
    options.prefix_cache.has_states = pick(0, 3) > 0;
    if (options.prefix_cache.has_states) options.prefix_cache.num_snapshots = pick(1, 20);
    options.prefix_cache.message_start = kMessageStart;
    options.prefix_cache.hash_mask = pick(0, 3) == 0 ? 3 : ~uint64_t{0};
    if (pick(0, 1) == 0) return options;
    PrefixFileOptions& file = options.prefix_cache.file;
    file = {.page_bytes = 1, .unit_pages = pick(1, 3), .snapshot_pages = options.prefix_cache.has_states ? pick(1, 3) : 0};
    file.num_pages = file.unit_pages + file.snapshot_pages + pick(0, 60);
    return options;
  }

  PolicyOptions random_policy() {
    constexpr std::array kPolicies = {SchedulingPolicy::kFcfs, SchedulingPolicy::kPriority, SchedulingPolicy::kFair};
    PolicyOptions policy;
    policy.policy = kPolicies.at(static_cast<std::size_t>(pick(0, 2)));
    if (pick(0, 2) == 0) policy.order = QueueOrder::kShortest;
    policy.aging_tokens_per_s = pick(1, 20'000);
    if (pick(0, 2) == 0) policy.decode_slo_s = 1e-3 * static_cast<double>(pick(1, 30));
    return policy;
  }
  SchedulingPolicy policy() const { return scheduler_.options().policy.policy; }

  void send() {
    const int64_t capacity = sequence_capacity(scheduler_.options());
    Request request;
    request.id = std::to_string(num_sent_);
    const int64_t num_prompt = pick(0, 3) == 0 ? std::min<int64_t>(capacity - 1, 64 * pick(1, 6) + 1) : pick(1, capacity - 1);
    fill_prompt(request, num_prompt);
    request.sampling.max_tokens = static_cast<int32_t>(pick(0, 2) == 0 ? pick(1, 400) : pick(1, 40));
    if (pick(0, 9) == 0) request.media = std::make_shared<const PromptMedia>();
    if (pick(0, 7) == 0) request.deadline = now_ + milliseconds(pick(0, 60));
    if (policy() == SchedulingPolicy::kPriority) request.priority = pick(-2, 2);
    request.account = std::to_string(pick(0, 3));
    if (pick(0, 3) == 0) call_ = std::make_shared<CallRequests>();
    if (pick(0, 1) == 0) request.call = call_;
    validate_request(request, scheduler_.options());
    const SchedulerLoad load = scheduler_.load();
    const bool was_full = load.num_waiting - load.num_preempted == scheduler_.options().max_waiting;
    Open open;
    open.arrival_idx = num_sent_;
    open.num_prompt = num_prompt;
    open.max_tokens = static_cast<int32_t>(std::min<int64_t>(request.sampling.max_tokens, capacity - num_prompt));
    open.deadline = request.deadline;
    const std::string id = request.id;
    open.sequence = scheduler_.add(std::move(request), now_);
    EXPECT_EQ(open.sequence == nullptr, was_full);
    if (open.sequence != nullptr) open_[id] = open;
    ++num_sent_;
  }

  /// With a cache, most prompts begin as another one does, for some length.
  void fill_prompt(Request& request, int64_t num_tokens) {
    if (is_sharing_ && !prompts_.empty() && pick(0, 3) > 0) {
      request.prompt = prompts_[static_cast<std::size_t>(pick(0, std::ssize(prompts_) - 1))];
      if (pick(0, 3) > 0) request.prompt.resize(static_cast<std::size_t>(pick(0, std::ssize(request.prompt))));
      if (std::ssize(request.prompt) > num_tokens) request.prompt.resize(static_cast<std::size_t>(num_tokens));
    }
    while (std::ssize(request.prompt) < num_tokens)
      request.prompt.push_back(static_cast<TokenId>(pick(0, FakeModel::kVocab - 1)));
    if (prompts_.size() < 6) prompts_.push_back(request.prompt);
    if (pick(0, 19) == 0) request.sampling.prompt_logprobs = 0;
    if (pick(0, 5) == 0) request.unit_contents = {{.unit = 0, .digest = {std::byte{1}}}};
    if (pick(0, 5) == 0) request.cache_hints = {pick(0, num_tokens), pick(0, num_tokens) + num_tokens};
  }

  void abort_one() {
    if (open_.empty()) return;
    auto it = open_.begin();
    std::advance(it, pick(0, std::ssize(open_) - 1));
    scheduler_.abort(*it->second.sequence);
    it->second.must_drop = true;
  }

  /// The file's part between steps: something of what was asked for was read, or could not be.
  void advance_file() {
    for (const auto& [number, serial] : std::exchange(engine_.lost_writes, {})) {
      const bool is_broken = pick(0, 29) == 0;
      scheduler_.note_file_write({number, serial}, 0, is_broken ? FileDrop::kWriteFailed : FileDrop::kBusy);
    }
    for (int64_t i = pick(0, 6); i > 0 && !reads_.empty(); --i) {
      const auto [record, values] = reads_.front();
      reads_.pop_front();
      const FileReadResult result{.is_good = values.has_value() && pick(0, 4) > 0, .num_bytes = 1};
      const std::optional<FileTarget> target = scheduler_.take_file_read(record, result);
      ASSERT_TRUE(!target || result.is_good);
      const std::vector<FileWrite> writes = scheduler_.take_file_writes();
      engine_.write_blocks(writes);
      engine_.write_states(writes);
      if (target) engine_.put(*target, *values);
      scheduler_.check_cache();
    }
    while (reads_.size() < 4) {
      const std::optional<FileRead> read = scheduler_.next_file_read();
      if (!read) return;
      reads_.emplace_back(read->record, engine_.read(*read));
      ASSERT_TRUE(reads_.back().second) << "record " << read->record.number << " is not what was written";
    }
  }

  void run_step() {
    advance_file();
    if (testing::Test::HasFatalFailure()) return;
    const int64_t prefill_limit = scheduler_.load().prefill_limit;
    const bool were_slots_full = num_slots_held() == scheduler_.options().max_running;
    const StepPlan& plan = scheduler_.plan(now_);
    for (const FileWrite& write : plan.file_writes) {
      if (pick(0, 9) == 0) engine_.lost_writes.insert({write.record.number, write.record.serial});
    }
    if (prefill_limit > 0 && plan.num_decode_tokens > 0) {
      int64_t num_rows = 0;
      for (const StepEntry& entry : plan.entries) num_rows += entry.is_decode && entry.num_rows == 1 ? 0 : prefill_rows(entry);
      ASSERT_LE(num_rows, prefill_limit);
      if (num_rows == prefill_limit) ++rarities_.limited_steps;
    }
    check_drops(plan);
    check_entries(plan);
    check_seniority(plan);
    check_shares(were_slots_full && plan.finished.empty());
    if (testing::Test::HasFatalFailure()) return;
    if (!plan.entries.empty() && pick(0, 400) == 0) {
      scheduler_.finish_all(FinishReason::kError, now_);
      for (auto& [id, open] : open_) open.must_drop = true;
    } else {
      commit_choices(plan);
      const auto is_open = [](const StepEntry& entry) { return entry.sequence->finish_reason == FinishReason::kNone; };
      const auto it = std::find_if(plan.entries.begin(), plan.entries.end(), is_open);
      if (it != plan.entries.end() && pick(0, 60) == 0) {
        open_.at(it->sequence->request.id).may_end_early = true;
        scheduler_.finish(*it->sequence, FinishReason::kStop, now_);
      }
    }
    take_finished();
    if (Sequence* next = scheduler_.next_for_media(); next != nullptr && pick(0, 3) == 0)
      scheduler_.give_media(*next, std::make_shared<const EmbeddedMedia>());
  }

  static int64_t prefill_rows(const StepEntry& entry) {
    return entry.sequence->state() == RequestState::kPrefilling ? entry.num_rows : 0;
  }

  /// Some drafts turn out right, some wrong; afterwards some sequences get new ones.
  void commit_choices(const StepPlan& plan) {
    engine_.run(plan);
    if (testing::Test::HasFatalFailure()) return;
    std::map<const Sequence*, int64_t> computed;
    std::size_t sample = 0;
    for (const StepEntry& entry : plan.entries) {
      const int64_t num_right = entry.samples ? engine_.counts.at(sample++) - 1 : 0;
      computed[entry.sequence] = entry.first_token + entry.num_rows - entry.num_drafts + num_right;
    }
    scheduler_.commit(plan, {.tokens = engine_.tokens, .num_tokens = engine_.counts}, now_);
    scheduler_.note_step(plan, 1e-5 * static_cast<double>(pick(90, 110) * (10 + plan.num_rows)));
    scheduler_.check_cache();
    for (const StepEntry& entry : plan.entries) {
      Sequence& sequence = *entry.sequence;
      EXPECT_EQ(sequence.num_computed, computed[&sequence]);
      replayed_[sequence.request.id] = entry.samples ? sequence.num_replayed : 0;
      EXPECT_TRUE(sequence.drafts.empty());
      if (sequence.state() != RequestState::kDecoding) continue;
      EXPECT_EQ(sequence.num_computed, std::ssize(sequence.tokens) - 1);
      if (pick(0, 2) > 0) propose(sequence);
    }
  }

  /// Drafts of which the first are right, and what follows is a guess.
  void propose(Sequence& sequence) {
    const std::vector<TokenId> answer = FakeModel::answer(sequence.request.prompt, sequence.num_generated() + 8);
    std::vector<TokenId> drafts;
    for (int64_t i = pick(0, scheduler_.options().max_drafts); i > 0; --i) {
      const auto at = static_cast<std::size_t>(sequence.num_generated()) + drafts.size();
      drafts.push_back(pick(0, 3) > 0 && at < answer.size() ? answer[at] : static_cast<TokenId>(pick(0, 49)));
    }
    scheduler_.propose(sequence, drafts);
  }

  /// Every aborted or late request is gone after this plan, and nothing else is.
  void check_drops(const StepPlan& plan) {
    std::set<std::string> dropped;
    for (const Sequence* sequence : plan.finished) {
      EXPECT_TRUE(dropped.insert(sequence->request.id).second);
      EXPECT_EQ(sequence->slot, -1);
      EXPECT_TRUE(sequence->blocks.empty() && sequence->saved_blocks.empty());
      EXPECT_EQ(sequence->state(), RequestState::kFinished);
    }
    for (const auto& [id, open] : open_) {
      const bool must_drop = open.must_drop || (open.deadline.has_value() && now_ >= *open.deadline);
      EXPECT_EQ(dropped.count(id) == 1, must_drop) << id;
    }
  }

  void check_entries(const StepPlan& plan) {
    const SchedulerOptions& options = scheduler_.options();
    ASSERT_LE(plan.num_rows, options.token_budget);
    ASSERT_EQ(plan.num_rows, plan.num_prefill_tokens + plan.num_decode_tokens + plan.num_drafts);
    ASSERT_LE(scheduler_.load().num_running, options.max_running);
    const bool is_idle = scheduler_.load().num_running + scheduler_.load().num_waiting == 0;
    ASSERT_TRUE(plan.entries.empty() == is_idle || scheduler_.next_for_media() != nullptr || scheduler_.waits_for_file())
        << "no progress";
    std::set<const Sequence*> sequences;
    int64_t num_rows = 0;
    int64_t num_samples = 0;
    for (const StepEntry& entry : plan.entries) {
      const Sequence& sequence = *entry.sequence;
      ASSERT_TRUE(sequences.insert(&sequence).second);
      ASSERT_EQ(entry.first_row, num_rows);
      ASSERT_EQ(entry.first_token, sequence.num_computed);
      ASSERT_GE(entry.num_rows, 1);
      ASSERT_EQ(entry.samples, entry.first_token + entry.num_rows - entry.num_drafts == std::ssize(sequence.tokens));
      ASSERT_GE(std::ssize(sequence.blocks) * options.block_tokens,
                std::min(entry.first_token + entry.num_rows + options.max_drafts, sequence.max_length()));
      ASSERT_TRUE(sequence.slot >= 0 && sequence.slot < options.max_running);
      check_cut(entry);
      check_writes(entry);
      num_rows += entry.num_rows;
      num_samples += entry.samples ? 1 : 0;
    }
    scheduler_.check_cache();
    ASSERT_EQ(num_rows, plan.num_rows);
    ASSERT_EQ(num_samples, plan.num_samples);
    check_ownership();
    for (const StepEntry& entry : plan.entries) ASSERT_TRUE(entry.sequence->saved_blocks.empty());
    rarities_.saved += std::ssize(plan.saved_blocks);
    rarities_.restored += std::ssize(plan.restored_blocks);
  }

  /// No block that the entry writes to is anybody else's.
  void check_writes(const StepEntry& entry) {
    const SchedulerOptions& options = scheduler_.options();
    const std::vector<int32_t>& blocks = entry.sequence->blocks;
    const auto first = static_cast<std::size_t>(entry.first_token / options.block_tokens);
    for (const auto& [id, open] : open_) {
      if (open.sequence == entry.sequence) continue;
      const std::set<int32_t> others(open.sequence->blocks.begin(), open.sequence->blocks.end());
      for (std::size_t i = first; i < blocks.size(); ++i) ASSERT_FALSE(others.contains(blocks[i])) << id;
    }
  }

  void check_cut(const StepEntry& entry) {
    const Sequence& sequence = *entry.sequence;
    Open& open = open_.at(sequence.request.id);
    if (entry.begins) {
      if (sequence.num_preemptions == 0 && sequence.request.media == nullptr) note_admitted(sequence, open.arrival_idx);
      if (sequence.num_generated() > 0) ++rarities_.recomputed;
      EXPECT_EQ(entry.first_token, sequence.cached.num_tokens);
      if (sequence.num_generated() == 0) {
        EXPECT_EQ(entry.first_token, sequence.num_cached);
      }
      EXPECT_TRUE(entry.first_token == 0 || (is_sharing_ && !sequence.request.sampling.prompt_logprobs));
      if (sequence.num_preemptions > 0 && entry.first_token > 0) ++rarities_.begun_anew_with_some;
      open.form.clear();
      append_form(open.form, entry.first_token, prefill_quantum(scheduler_.options().prefill_chunk));
      replayed_[sequence.request.id] = 0;
    }
    EXPECT_TRUE(entry.begins || entry.first_token > 0);
    EXPECT_EQ(entry.is_decode, !sequence.in_prefill());
    if (!sequence.in_prefill()) {
      const bool is_known = entry.first_token + entry.num_rows - entry.num_drafts < std::ssize(sequence.tokens);
      if (sequence.state() == RequestState::kPrefilling) {
        EXPECT_TRUE(sequence.num_preemptions > 0 && entry.num_drafts == 0 && entry.samples != is_known);
        return;
      }
      EXPECT_EQ(entry.num_rows, 1 + entry.num_drafts);
      EXPECT_LE(entry.num_drafts, std::ssize(sequence.drafts));
      EXPECT_LE(sequence.num_generated() + 1 + entry.num_drafts, open.max_tokens);
      EXPECT_EQ(entry.num_replayed, replayed_[sequence.request.id]);
      return;
    }
    EXPECT_EQ(entry.num_drafts + entry.num_replayed, 0);
    EXPECT_LE(entry.num_rows, scheduler_.options().prefill_chunk);
    append_form(open.form, entry.num_rows, prefill_quantum(scheduler_.options().prefill_chunk));
    if (entry.first_token + entry.num_rows == open.num_prompt) {
      const auto [it, is_new] = form_of_length_.emplace(open.num_prompt, open.form);
      EXPECT_EQ(it->second, open.form) << "a prompt of " << open.num_prompt << " tokens was computed in two ways";
    }
  }

  /// No slot has two owners, a block only where the tokens up to its end are the same, and the blocks of all open sequences are
  /// exactly the used ones.
  void check_ownership() {
    std::set<int32_t> slots, saved_blocks;
    std::map<int32_t, std::pair<const Sequence*, std::size_t>> blocks;
    int64_t num_saved = 0, num_preempted = 0, num_admitted = 0, num_slotless = 0;
    for (const auto& [id, open] : open_) {
      const Sequence& sequence = *open.sequence;
      if (sequence.slot < 0) {
        num_slotless += sequence.state() == RequestState::kPreempted ? 1 : 0;
        ASSERT_TRUE(sequence.blocks.empty() && sequence.saved_blocks.empty());
        continue;
      }
      ++num_admitted;
      ASSERT_TRUE(slots.insert(sequence.slot).second) << id;
      for (std::size_t i = 0; i < sequence.blocks.size(); ++i) {
        const auto [it, is_new] = blocks.emplace(sequence.blocks[i], std::pair(&sequence, i));
        if (is_new) continue;
        ++rarities_.shared_blocks;
        ASSERT_EQ(it->second.second, i);
        const auto end = static_cast<std::ptrdiff_t>(i + 1) * scheduler_.options().block_tokens;
        const Sequence& other = *it->second.first;
        ASSERT_TRUE(end <= sequence.num_prompt() && end <= other.num_prompt() &&
                    std::equal(sequence.tokens.begin(), sequence.tokens.begin() + end, other.tokens.begin()))
            << id << " and " << other.request.id << " share block " << i;
        ASSERT_EQ(sequence.request.unit_contents.size(), other.request.unit_contents.size());
      }
      saved_blocks.insert(sequence.saved_blocks.begin(), sequence.saved_blocks.end());
      num_saved += std::ssize(sequence.saved_blocks);
      const bool is_preempted = sequence.state() == RequestState::kPreempted;
      num_preempted += is_preempted ? 1 : 0;
      if (is_preempted) {
        preempted_.insert(id);
      } else {
        preempted_.erase(id);
      }
      if (is_preempted && sequence.num_replayed > 0) ++rarities_.held_while_preempted;
      ASSERT_TRUE(is_preempted ? sequence.blocks.empty() : sequence.saved_blocks.empty());
    }
    const SchedulerLoad load = scheduler_.load();
    ASSERT_EQ(num_admitted, load.num_running + load.num_preempted - num_slotless);
    ASSERT_EQ(num_preempted + num_slotless, load.num_preempted);
    ASSERT_EQ(std::ssize(blocks), load.num_used_blocks);
    ASSERT_EQ(std::ssize(saved_blocks), num_saved);
    ASSERT_EQ(num_saved, load.num_used_swap_blocks);
  }

  /// The oldest that is admitted has rows, in every step or by turns, and behind a preempted one nobody holds a block. Who
  /// waits for media asks for nothing yet, but what it will ask for is kept free of those behind it. Nobody waits for whom it
  /// goes before by its priority, but who waits for the file.
  void check_seniority(const StepPlan& plan) {
    std::map<Seniority, const Sequence*> by_seniority;
    std::optional<int64_t> best_waiting;
    for (const auto& [id, open] : open_) {
      const Sequence& sequence = *open.sequence;
      if (sequence.finish_reason != FinishReason::kNone) continue;
      if (sequence.slot >= 0) {
        by_seniority[sequence.seniority] = &sequence;
      } else if (const int64_t priority = sequence.request.priority;
                 !sequence.load && priority < best_waiting.value_or(priority + 1)) {
        best_waiting = priority;
      }
    }
    if (!by_seniority.empty()) {
      check_oldest(plan, *by_seniority.begin()->second);
      ASSERT_LE(by_seniority.rbegin()->second->request.priority,
                best_waiting.value_or(by_seniority.rbegin()->second->request.priority));
    }
    bool is_behind = false;
    for (const auto& [seniority, sequence] : by_seniority) {
      ASSERT_TRUE(!is_behind || sequence->blocks.empty()) << sequence->request.id << " behind a preempted one";
      is_behind = is_behind || sequence->state() == RequestState::kPreempted;
    }
  }

  int64_t num_slots_held() const {
    return std::ranges::count_if(open_, [](const auto& entry) { return entry.second.sequence->slot >= 0; });
  }

  /// Of slots: where all are held accounts that want more differ by one at most, and no call has all of them where it may not.
  void check_shares(bool were_slots_full) {
    std::map<std::string, int64_t> num_slots;
    std::map<const CallRequests*, int64_t> of_calls;
    int64_t most = 0;
    for (const auto& [id, open] : open_) {
      const Request& request = open.sequence->request;
      if (open.sequence->slot < 0) continue;
      most = std::max(most, ++num_slots[request.account]);
      if (request.call) ++of_calls[request.call.get()];
    }
    for (const auto& [call, num_running] : of_calls) {
      ASSERT_EQ(call->num_running, num_running);
      if (policy() == SchedulingPolicy::kFcfs && scheduler_.options().max_running > 1) {
        ASSERT_LT(num_running, scheduler_.options().max_running);
      }
    }
    if (policy() != SchedulingPolicy::kFair || !were_slots_full) return;
    for (const auto& [id, open] : open_) {
      const Sequence& sequence = *open.sequence;
      if (sequence.slot >= 0 || sequence.load || sequence.finish_reason != FinishReason::kNone) continue;
      ASSERT_LE(most, num_slots[sequence.request.account] + 1) << id << " waits though another account has more";
      ++rarities_.waits_for_equals;
    }
  }

  void check_oldest(const StepPlan& plan, const Sequence& oldest) {
    if (oldest.waits_for_media()) return;
    const bool has_rows = std::ranges::any_of(plan.entries, [&](const StepEntry& entry) { return entry.sequence == &oldest; });
    num_steps_without_rows_ = has_rows || oldest_ != oldest.request.id ? 0 : num_steps_without_rows_ + 1;
    oldest_ = oldest.request.id;
    // A turn is of 256 tokens, and a quantum of rows is always there for whose turn it is.
    const int64_t most =
        policy() != SchedulingPolicy::kFair ? 0 : 4 * (256 / prefill_quantum(scheduler_.options().prefill_chunk) + 2);
    ASSERT_LE(num_steps_without_rows_, most);
    ASSERT_TRUE(has_rows || policy() == SchedulingPolicy::kFair)
        << "the oldest, " << oldest.request.id << ", " << request_state_name(oldest.state()) << ", has no rows";
  }

  void take_finished() {
    for (const auto& sequence : scheduler_.take_finished()) {
      const auto it = open_.find(sequence->request.id);
      ASSERT_NE(it, open_.end()) << "handed out twice";
      ASSERT_NE(sequence->finish_reason, FinishReason::kNone);
      ASSERT_TRUE(sequence->finished.has_value());
      const bool is_full = sequence->num_generated() == it->second.max_tokens;
      EXPECT_LE(sequence->num_generated(), it->second.max_tokens);
      if (sequence->finish_reason == FinishReason::kLength) {
        EXPECT_TRUE(is_full && sequence->tokens.back() != kStopId);
      }
      const std::vector<TokenId> alone = FakeModel::answer(sequence->request.prompt, it->second.max_tokens);
      const std::vector<TokenId> answer(sequence->tokens.begin() + sequence->num_prompt(), sequence->tokens.end());
      ASSERT_LE(answer.size(), alone.size());
      EXPECT_TRUE(std::equal(answer.begin(), answer.end(), alone.begin())) << "another answer than alone";
      if (!it->second.must_drop && !it->second.may_end_early && sequence->finish_reason != FinishReason::kDeadline) {
        EXPECT_EQ(answer.size(), alone.size());
      }
      if (preempted_.erase(it->first) > 0) ++rarities_.ended_while_preempted;
      open_.erase(it);
    }
  }

  /// Those between whom the policy knows no difference are admitted in order of arrival, but for requests of one call, which
  /// others may pass.
  void note_admitted(const Sequence& sequence, int64_t arrival_idx) {
    if (sequence.request.call) return;
    const bool is_fair = policy() == SchedulingPolicy::kFair;
    const std::string equals = is_fair ? sequence.request.account : std::to_string(sequence.request.priority);
    admitted_[equals][arrival_idx] = *sequence.first_scheduled;
  }
  void expect_order() const {
    if (scheduler_.options().policy.order == QueueOrder::kShortest) return;
    for (const auto& [equals, times] : admitted_) {
      EXPECT_TRUE(std::ranges::is_sorted(times, {}, [](const auto& of_arrival) { return of_arrival.second; })) << equals;
    }
  }

  std::mt19937 rng_;
  const bool is_sharing_;  // prompts that begin alike, and a prefix cache
  std::vector<std::vector<TokenId>> prompts_;
  Scheduler scheduler_;
  FakeEngine engine_;
  std::deque<std::pair<FileRecordId, std::optional<std::vector<uint64_t>>>> reads_;  // asked for
  Rarities& rarities_;
  TimePoint now_;
  int64_t num_sent_ = 0;
  std::shared_ptr<CallRequests> call_ = std::make_shared<CallRequests>();  // to which requests may belong
  std::map<std::string, Open> open_;
  std::set<std::string> preempted_;                               // after the last plan
  std::map<std::string, int64_t> replayed_;                       // right drafts of the last step
  std::map<std::string, std::map<int64_t, TimePoint>> admitted_;  // by account or priority, when, by arrival_idx
  std::string oldest_;                                            // of the last plan
  int64_t num_steps_without_rows_ = 0;                            // since when
  std::map<int64_t, std::string> form_of_length_;                 // prompt tokens -> how it was computed
};

TEST(SchedulerProperties, HoldForRandomStreams) {
  Rarities rarities;
  for (uint32_t seed = 1; seed <= test::draws(2400U, 300U); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Stream stream(seed, rarities);
    stream.run();
    if (HasFailure()) return;
  }
  const std::pair<const char*, int64_t> counts[] = {{"preemptions", rarities.preemptions},
                                                    {"lost slots", rarities.lost_slots},
                                                    {"limited steps", rarities.limited_steps},
                                                    {"waits for equals", rarities.waits_for_equals},
                                                    {"saved", rarities.saved},
                                                    {"restored", rarities.restored},
                                                    {"recomputed", rarities.recomputed},
                                                    {"held while preempted", rarities.held_while_preempted},
                                                    {"ended while preempted", rarities.ended_while_preempted},
                                                    {"cached tokens", rarities.cached_tokens},
                                                    {"shared blocks", rarities.shared_blocks},
                                                    {"begun anew with some", rarities.begun_anew_with_some},
                                                    {"evicted units", rarities.evicted_units},
                                                    {"evicted snapshots", rarities.evicted_snapshots},
                                                    {"hits of the file", rarities.file_hits},
                                                    {"tokens from the file", rarities.file_tokens}};
  constexpr int64_t kTries = test::draws(10, 0);  // more than which there must be
  for (const auto& [name, count] : counts) EXPECT_GT(count, kTries) << name << ": the streams do not try what they should";
  for (int miss = 0; miss < kNumCacheMisses; ++miss)
    EXPECT_GT(rarities.misses[static_cast<std::size_t>(miss)], kTries) << cache_miss_name(static_cast<CacheMiss>(miss));
  for (int why = 0; why < kNumFileDrops; ++why)
    EXPECT_GT(rarities.file_drops[static_cast<std::size_t>(why)], kTries) << file_drop_name(static_cast<FileDrop>(why));
}

}  // namespace
}  // namespace ferry

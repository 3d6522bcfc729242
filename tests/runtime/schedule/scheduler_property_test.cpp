#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>

#include "runtime/schedule/scheduler.h"

// Random streams of requests, aborts, deadlines and stops against a scheduler with random limits. After every call the
// promises of scheduler.h must hold.

namespace ferry {
namespace {

using std::chrono::milliseconds;
using TimePoint = Scheduler::TimePoint;

constexpr TokenId kStopId = 3;
constexpr int64_t kMaxSteps = 20'000;

/// How a prompt was computed, as far as rounding is concerned: 'r' for a row in the recurrent form, else the lengths of the
/// pieces of the chunk form.
void append_form(std::string& form, int64_t num_tokens, int64_t chunk) {
  for (; num_tokens > 0; num_tokens -= chunk) form += std::to_string(std::min(num_tokens, chunk)) + " ";
}

class Stream {
 public:
  explicit Stream(uint32_t seed) : rng_(seed), scheduler_(random_options()) {}

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
    EXPECT_EQ(scheduler_.load().num_running, 0);
    EXPECT_EQ(scheduler_.load().num_waiting, 0);
    EXPECT_TRUE(scheduler_.plan(now_).entries.empty());
    expect_fifo();
  }

 private:
  struct Open {
    Sequence* sequence = nullptr;
    int64_t arrival_idx = 0;
    int64_t num_prompt = 0;
    int32_t max_tokens = 0;
    bool must_drop = false;
    std::optional<TimePoint> deadline;
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
    options.max_context = pick(2, 700);
    options.vocab_size = 50;
    options.max_drafts = pick(0, 4);
    options.stop_token_ids = {kStopId};
    return options;
  }

  void send() {
    const int64_t capacity = sequence_capacity(scheduler_.options());
    Request request;
    request.id = std::to_string(num_sent_);
    const int64_t num_prompt = pick(0, 3) == 0 ? std::min<int64_t>(capacity - 1, 64 * pick(1, 6) + 1) : pick(1, capacity - 1);
    request.prompt.assign(static_cast<std::size_t>(num_prompt), 9);
    request.sampling.max_tokens = static_cast<int32_t>(pick(1, 40));
    if (pick(0, 7) == 0) request.deadline = now_ + milliseconds(pick(0, 60));
    validate_request(request, scheduler_.options());
    const bool was_full = scheduler_.load().num_waiting == scheduler_.options().max_waiting;
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

  void abort_one() {
    if (open_.empty()) return;
    auto it = open_.begin();
    std::advance(it, pick(0, std::ssize(open_) - 1));
    scheduler_.abort(*it->second.sequence);
    it->second.must_drop = true;
  }

  void run_step() {
    const StepPlan& plan = scheduler_.plan(now_);
    check_drops(plan);
    check_entries(plan);
    if (testing::Test::HasFatalFailure()) return;
    if (!plan.entries.empty() && pick(0, 400) == 0) {
      scheduler_.finish_all(FinishReason::kError, now_);
      for (auto& [id, open] : open_) open.must_drop = true;
    } else {
      commit_choices(plan);
      const auto is_open = [](const StepEntry& entry) { return entry.sequence->finish_reason == FinishReason::kNone; };
      const auto it = std::find_if(plan.entries.begin(), plan.entries.end(), is_open);
      if (it != plan.entries.end() && pick(0, 30) == 0) scheduler_.finish(*it->sequence, FinishReason::kStop, now_);
    }
    take_finished();
  }

  /// Some drafts turn out right, some wrong; afterwards some sequences get new ones.
  void commit_choices(const StepPlan& plan) {
    std::vector<TokenId> tokens;
    std::vector<int32_t> counts;
    std::map<const Sequence*, int64_t> computed;
    for (const StepEntry& entry : plan.entries) {
      int64_t num_taken = entry.num_rows - entry.num_drafts;
      if (entry.samples) {
        counts.push_back(static_cast<int32_t>(pick(1, entry.num_logits())));
        for (int32_t i = 0; i < counts.back(); ++i) tokens.push_back(static_cast<TokenId>(pick(0, 49)));
        num_taken += counts.back() - 1;
      }
      computed[entry.sequence] = entry.first_token + num_taken;
    }
    scheduler_.commit(plan, {.tokens = tokens, .num_tokens = counts}, now_);
    for (const StepEntry& entry : plan.entries) {
      Sequence& sequence = *entry.sequence;
      EXPECT_EQ(sequence.num_computed, computed[&sequence]);
      replayed_[sequence.request.id] = entry.samples ? sequence.num_replayed : 0;
      EXPECT_TRUE(sequence.drafts.empty());
      if (sequence.finish_reason != FinishReason::kNone || sequence.in_prefill()) continue;
      EXPECT_EQ(sequence.num_computed, std::ssize(sequence.tokens) - 1);
      const std::vector<TokenId> drafts(static_cast<std::size_t>(pick(0, scheduler_.options().max_drafts)), 3);
      if (pick(0, 2) > 0) scheduler_.propose(sequence, drafts);
    }
  }

  /// Every aborted or late request is gone after this plan, and nothing else is.
  void check_drops(const StepPlan& plan) {
    std::set<std::string> dropped;
    for (const Sequence* sequence : plan.finished) {
      EXPECT_TRUE(dropped.insert(sequence->request.id).second);
      EXPECT_EQ(sequence->slot, -1);
      EXPECT_TRUE(sequence->blocks.empty());
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
    ASSERT_EQ(plan.entries.empty(), scheduler_.load().num_running + scheduler_.load().num_waiting == 0) << "no progress";
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
                sequence.num_prompt() + sequence.request.sampling.max_tokens);
      ASSERT_TRUE(sequence.slot >= 0 && sequence.slot < options.max_running);
      check_cut(entry);
      num_rows += entry.num_rows;
      num_samples += entry.samples ? 1 : 0;
      running_[sequence.request.id] = &sequence;
    }
    ASSERT_EQ(num_rows, plan.num_rows);
    ASSERT_EQ(num_samples, plan.num_samples);
    check_ownership(plan);
  }

  void check_cut(const StepEntry& entry) {
    const Sequence& sequence = *entry.sequence;
    Open& open = open_.at(sequence.request.id);
    if (entry.first_token == 0) admitted_.push_back(open.arrival_idx);
    EXPECT_EQ(entry.resets_state, entry.first_token == 0);
    EXPECT_EQ(entry.is_decode, !sequence.in_prefill());
    if (!sequence.in_prefill()) {
      EXPECT_EQ(entry.num_rows, 1 + entry.num_drafts);
      EXPECT_LE(entry.num_drafts, std::ssize(sequence.drafts));
      EXPECT_LE(sequence.num_generated() + 1 + entry.num_drafts, open.max_tokens);
      EXPECT_EQ(entry.num_replayed, replayed_[sequence.request.id]);
      return;
    }
    EXPECT_EQ(entry.num_drafts + entry.num_replayed, 0);
    EXPECT_LE(entry.num_rows, scheduler_.options().prefill_chunk);
    append_form(open.form, entry.num_rows, prefill_quantum(scheduler_.options().prefill_chunk));
    if (entry.samples) {
      const auto [it, is_new] = form_of_length_.emplace(open.num_prompt, open.form);
      EXPECT_EQ(it->second, open.form) << "a prompt of " << open.num_prompt << " tokens was computed in two ways";
    }
  }

  /// No block and no slot has two owners, and the blocks of all running sequences are exactly the used ones.
  void check_ownership(const StepPlan& plan) {
    for (const Sequence* sequence : plan.finished) running_.erase(sequence->request.id);
    std::set<int32_t> slots;
    std::set<int32_t> blocks;
    int64_t num_blocks = 0;
    for (const auto& [id, sequence] : running_) {
      ASSERT_TRUE(slots.insert(sequence->slot).second) << id;
      blocks.insert(sequence->blocks.begin(), sequence->blocks.end());
      num_blocks += std::ssize(sequence->blocks);
    }
    ASSERT_EQ(std::ssize(running_), scheduler_.load().num_running);
    ASSERT_EQ(std::ssize(blocks), num_blocks);
    ASSERT_EQ(num_blocks, scheduler_.load().num_used_blocks);
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
      running_.erase(it->first);
      open_.erase(it);
    }
  }

  void expect_fifo() const { EXPECT_TRUE(std::is_sorted(admitted_.begin(), admitted_.end())); }

  std::mt19937 rng_;
  Scheduler scheduler_;
  TimePoint now_;
  int64_t num_sent_ = 0;
  std::map<std::string, Open> open_;
  std::map<std::string, const Sequence*> running_;
  std::map<std::string, int64_t> replayed_;        // right drafts of the last step
  std::vector<int64_t> admitted_;                  // arrival_idx in order of first rows
  std::map<int64_t, std::string> form_of_length_;  // prompt tokens -> how it was computed
};

TEST(SchedulerProperties, HoldForRandomStreams) {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Stream stream(seed);
    stream.run();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace ferry

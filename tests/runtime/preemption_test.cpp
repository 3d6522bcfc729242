#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "runtime/engine.h"
#include "tests/support/listed_device.h"
#include "tests/support/source_folder.h"

// Sequences that are preempted in the middle of their answers, and whose drafts wait beside their states meanwhile, get the
// tokens and the logits, bit for bit, that they get alone: with their blocks saved, and with all of it computed anew, in the
// same slot or in another one.

namespace ferry {
namespace {

constexpr int64_t kMaxDrafts = 3;

/// How much is tried; blocks are of 16 tokens, and so few that the first request takes one from the second.
struct Size {
  std::vector<int64_t> requests;  // their numbers
  int32_t answer_tokens = 0;
  int64_t num_blocks = 0;
};

/// What the CPU emulates takes a hundred times as long.
Size size_on(DeviceChoice::Kind kind) {
  if (kind == DeviceChoice::Kind::kVulkan) return {.requests = {0, 1}, .answer_tokens = 24, .num_blocks = 7};
  return {.requests = {0, 1, 2, 3}, .answer_tokens = 90, .num_blocks = 15};
}

/// What a request got: tokens, and the bytes of the logits that chose each.
struct Answer {
  std::vector<TokenId> tokens;
  std::vector<std::vector<std::byte>> logits;
};

Request request_of(int64_t number, int32_t answer_tokens) {
  Request request;
  request.id = std::to_string(number);
  request.prompt.resize(static_cast<std::size_t>(20 + 41 * (number % 3)));
  std::iota(request.prompt.begin(), request.prompt.end(), static_cast<TokenId>(3 + number));
  request.sampling.max_tokens = answer_tokens;
  request.sampling.ignore_eos = true;
  request.sampling.seed = static_cast<uint64_t>(number);
  request.sampling.temperature = number % 2 == 0 ? 0.0F : 0.9F;
  return request;
}

EngineOptions engine_options(const DeviceChoice& device) {
  EngineOptions options;
  options.model = test::source_folder() / "tests" / "golden" / "fp8_qwen3_5_moe";
  options.device = device;
  options.dtype = DType::kBF16;
  options.threads = 2;
  options.max_seqs = 4;
  options.memory_bytes = int64_t{64} << 20;
  options.max_context = 256;
  options.speculation = {Speculation::Source::kMtp, kMaxDrafts};
  return options;
}

/// Where an engine's logits of the last step are, found out by one that is forgotten.
HostLogits& logits_of(Engine& engine) {
  Scheduler scheduler(engine.scheduler_options());
  scheduler.add(request_of(0, 1), {});
  HostLogits& logits = engine.compute(scheduler.plan({}));
  logits.fetch();
  scheduler.finish_all(FinishReason::kAborted, {});
  return logits;
}

/// Steps an engine with a scheduler that has `limits`.
class TightRun {
 public:
  TightRun(Engine& engine, HostLogits& logits, const SchedulerOptions& limits)
      : engine_(engine), logits_(logits), scheduler_(limits) {}

  /// Of these requests together; with tokens of the `expected` ones as drafts, if there are any.
  std::map<std::string, Answer> answers(const std::vector<int64_t>& numbers, int32_t answer_tokens,
                                        const std::map<std::string, Answer>* expected) {
    for (const int64_t number : numbers) EXPECT_NE(scheduler_.add(request_of(number, answer_tokens), {}), nullptr);
    std::map<std::string, Answer> answers;
    for (int64_t i = 0; scheduler_.load().num_running + scheduler_.load().num_waiting > 0; ++i) {
      if (before_step) before_step(scheduler_, i);
      step(answers, expected);
    }
    return answers;
  }
  std::function<void(Scheduler& scheduler, int64_t step_idx)> before_step;
  SchedulerLoad load() const { return scheduler_.load(); }
  int64_t num_saved() const { return num_saved_; }
  /// Sequences that were preempted while right drafts waited to be replayed.
  int64_t num_replays_put_off() const { return num_replays_put_off_; }

 private:
  void step(std::map<std::string, Answer>& answers, const std::map<std::string, Answer>* expected) {
    std::map<const Sequence*, int64_t> replays;
    for (const Sequence* sequence : decoding_) replays[sequence] = sequence->num_replayed;
    const StepPlan& plan = scheduler_.plan({});
    num_saved_ += std::ssize(plan.saved_blocks);
    for (const auto& [sequence, num_replayed] : replays)
      num_replays_put_off_ += sequence->state() == RequestState::kPreempted && num_replayed > 0 ? 1 : 0;
    const StepChoices choices = engine_.run_step(plan);
    const ConstMatrixView values = logits_.all_values();
    int64_t row = 0;
    std::size_t sample = 0;
    for (const StepEntry& entry : plan.entries) {
      if (!entry.samples) continue;
      const int32_t num_chosen = choices.num_tokens[sample++];
      for (int32_t i = 0; i < num_chosen; ++i) {
        const std::byte* bytes = values.row_bytes(row + i);
        answers[entry.sequence->request.id].logits.emplace_back(bytes, bytes + values.cols * dtype_bytes(values.dtype));
      }
      row += entry.num_logits();
    }
    scheduler_.commit(plan, choices, {});
    engine_.draft(plan, scheduler_);
    if (expected != nullptr) propose(plan, *expected);
    decoding_.clear();
    for (const StepEntry& entry : plan.entries) {
      if (entry.sequence->state() == RequestState::kDecoding) decoding_.insert(entry.sequence);
    }
    for (const std::unique_ptr<Sequence>& sequence : scheduler_.take_finished())
      answers[sequence->request.id].tokens.assign(sequence->tokens.begin() + sequence->num_prompt(), sequence->tokens.end());
  }

  /// Two right drafts and a wrong one.
  void propose(const StepPlan& plan, const std::map<std::string, Answer>& expected) {
    for (const StepEntry& entry : plan.entries) {
      Sequence& sequence = *entry.sequence;
      if (sequence.state() != RequestState::kDecoding) continue;
      const std::vector<TokenId>& tokens = expected.at(sequence.request.id).tokens;
      const auto next = tokens.begin() + sequence.num_generated();
      std::vector<TokenId> drafts(next, next + std::min<int64_t>(2, tokens.end() - next));
      drafts.push_back(5);
      scheduler_.propose(sequence, drafts);
    }
  }

  Engine& engine_;
  HostLogits& logits_;  // the engine's
  Scheduler scheduler_;
  std::set<const Sequence*> decoding_;  // behind the last step
  int64_t num_saved_ = 0, num_replays_put_off_ = 0;
};

/// What computes, and whether keys and values are codes.
struct PreemptionWay {
  DeviceChoice::Kind kind;
  std::optional<DType> kv_dtype;
};

class Preemption : public testing::TestWithParam<PreemptionWay> {
 protected:
  void SetUp() override {
    if (GetParam().kind == DeviceChoice::Kind::kVulkan && !test::has_vulkan_device()) GTEST_SKIP() << "no Vulkan device";
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, Preemption,
                         testing::Values(PreemptionWay{DeviceChoice::Kind::kCpu, {}},
                                         PreemptionWay{DeviceChoice::Kind::kCpu, DType::kI8},
                                         PreemptionWay{DeviceChoice::Kind::kVulkan, {}}),
                         [](const auto& way) {
                           const std::string device = way.param.kind == DeviceChoice::Kind::kCpu ? "cpu" : "vulkan";
                           return device + (way.param.kv_dtype ? "_codes" : "");
                         });

void expect_same(const std::map<std::string, Answer>& answers, const std::map<std::string, Answer>& expected) {
  ASSERT_EQ(answers.size(), expected.size());
  for (const auto& [id, answer] : answers) {
    EXPECT_EQ(answer.tokens, expected.at(id).tokens) << "request " << id;
    ASSERT_GE(answer.logits.size(), answer.tokens.size());
    for (std::size_t i = 0; i < answer.tokens.size(); ++i)
      ASSERT_EQ(answer.logits[i], expected.at(id).logits[i]) << "request " << id << ", logits of token " << i;
  }
}

TEST_P(Preemption, ChangesNoBit) {
  const Size size = size_on(GetParam().kind);
  EngineOptions options = engine_options({GetParam().kind, std::nullopt});
  options.kv_cache_dtype = GetParam().kv_dtype;
  Cluster cluster(options);
  Engine engine(options, cluster);
  std::map<std::string, Answer> alone;
  engine.set_drafting(Drafting::kOff);
  HostLogits& logits = logits_of(engine);
  for (const int64_t number : size.requests) {
    TightRun run(engine, logits, engine.scheduler_options());
    alone.merge(run.answers({number}, size.answer_tokens, nullptr));
    EXPECT_EQ(run.load().num_preemptions, 0);
  }
  SchedulerOptions limits = engine.scheduler_options();
  limits.num_blocks = size.num_blocks;
  for (const bool has_swap_space : {true, false}) {
    limits.num_swap_blocks = has_swap_space ? engine.scheduler_options().num_swap_blocks : 0;
    ASSERT_EQ(limits.num_swap_blocks > 0, has_swap_space);
    for (const Drafting drafting : {Drafting::kOff, Drafting::kOn}) {
      const bool drafts = drafting == Drafting::kOn;
      if (!drafts && GetParam().kind == DeviceChoice::Kind::kVulkan) continue;
      SCOPED_TRACE(std::string(has_swap_space ? "saved" : "computed anew") + (drafts ? ", with drafts" : ", without drafts"));
      engine.set_drafting(drafting);
      TightRun run(engine, logits, limits);
      expect_same(run.answers(size.requests, size.answer_tokens, drafts ? &alone : nullptr), alone);
      EXPECT_GT(run.load().num_preemptions, 0);
      EXPECT_EQ(run.num_saved() > 0, has_swap_space);
      EXPECT_EQ(run.num_replays_put_off() > 0, drafts);
    }
  }
}

/// Requests of a better priority take the slots of others in the middle of their answers, twice.
TEST_P(Preemption, NorDoesTheLossOfASlot) {
  const bool is_emulated = GetParam().kind == DeviceChoice::Kind::kVulkan;
  const int32_t num_tokens = is_emulated ? 10 : 90;
  const std::vector<int64_t> early = is_emulated ? std::vector<int64_t>{0, 3} : std::vector<int64_t>{0, 1};
  const std::vector<int64_t> late = is_emulated ? std::vector<int64_t>{6, 9} : std::vector<int64_t>{4, 5};
  EngineOptions options = engine_options({GetParam().kind, std::nullopt});
  options.kv_cache_dtype = GetParam().kv_dtype;
  Cluster cluster(options);
  Engine engine(options, cluster);
  HostLogits& logits = logits_of(engine);
  std::map<std::string, Answer> alone;
  engine.set_drafting(Drafting::kOff);
  for (const std::vector<int64_t>& numbers : {early, late}) {
    for (const int64_t number : numbers)
      alone.merge(TightRun(engine, logits, engine.scheduler_options()).answers({number}, num_tokens, nullptr));
  }
  engine.set_drafting(Drafting::kOn);
  SchedulerOptions limits = engine.scheduler_options();
  limits.max_running = 2;
  limits.policy.policy = SchedulingPolicy::kPriority;
  TightRun run(engine, logits, limits);
  run.before_step = [&](Scheduler& scheduler, int64_t step_idx) {
    if (step_idx != 3 && step_idx != 5) return;
    Request request = request_of(late[step_idx == 3 ? 0 : 1], num_tokens);
    request.priority = -step_idx;
    ASSERT_NE(scheduler.add(std::move(request), {}), nullptr);
  };
  expect_same(run.answers(early, num_tokens, &alone), alone);
  EXPECT_EQ(run.load().num_lost_slots, 2);
}

}  // namespace
}  // namespace ferry

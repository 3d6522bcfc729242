#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "runtime/engine.h"
#include "runtime/schedule/scheduler.h"
#include "runtime/step_sampler.h"
#include "tests/support/allocation_count.h"
#include "tests/support/temp_folder.h"
#include "tests/support/test_stream.h"
#include "tests/support/tiny_model.h"

// Everything that a step writes is sized at start: planning, computing, sampling and committing a decode step allocates
// nothing.

namespace ferry {
namespace {

/// The longest row of decode steps, of up to `num_steps`, that allocate nothing. Three sequences, one of them sampled at a
/// temperature. It ends early with a row of `enough`.
///
/// A thread of the pool takes memory with its first piece of each kind of work, for which another may be quicker for many steps
/// where cores are short. That happens a few times at most. What a step allocates of itself it allocates in every row.
int longest_row_without_allocations(const EngineOptions& options, int num_steps, int enough) {
  Cluster cluster(options);
  Engine engine(options, cluster);
  Scheduler scheduler(engine.scheduler_options());
  const auto now = std::chrono::steady_clock::now();
  for (int i = 0; i < 3; ++i) {
    Request request;
    request.id = std::to_string(i);
    request.prompt.resize(static_cast<std::size_t>(5 + i));
    std::iota(request.prompt.begin(), request.prompt.end(), 2);
    request.sampling.max_tokens = num_steps + 1;
    request.sampling.ignore_eos = true;
    request.sampling.temperature = i == 0 ? 0.8F : 0.0F;
    scheduler.add(std::move(request), now);
  }
  const auto step = [&] {
    const StepPlan& plan = scheduler.plan(now);
    EXPECT_EQ(plan.entries.size(), 3U);
    scheduler.commit(plan, engine.run_step(plan), now);
  };
  step();  // the prompts
  int longest = 0;
  for (int i = 0, row = 0; i < num_steps && longest < enough; ++i) {
    const int64_t before = test::num_allocations();
    step();
    row = test::num_allocations() == before ? row + 1 : 0;
    longest = std::max(longest, row);
  }
  return longest;
}

constexpr int kEnough = 30, kSteps = 240;

class StepAllocationTest : public testing::Test {
 protected:
  StepAllocationTest() {
    test::TinyModel().write(dir_.path());
    options_.model = dir_.path();
    options_.threads = 2;
    options_.memory_bytes = int64_t{64} << 20;
    options_.max_seqs = 5;
  }
  test::TempFolder dir_;
  EngineOptions options_;
};

TEST_F(StepAllocationTest, ADecodeStepAllocatesNothing) {
  EXPECT_EQ(longest_row_without_allocations(options_, kSteps, kEnough), kEnough);
}

TEST_F(StepAllocationTest, NorWithQuantisedWeights) {
  options_.quantization = Quantization{.experts = WeightType{WeightFormat::kInt8, 0}};
  EXPECT_EQ(longest_row_without_allocations(options_, kSteps, kEnough), kEnough);
}

TEST(AllocationCount, Counts) {
  const int64_t before = test::num_allocations();
  const auto one = std::make_unique<std::vector<int>>(3);
  EXPECT_EQ(one->size(), 3U);
  EXPECT_EQ(test::num_allocations() - before, 2);
}

TEST(StepAllocations, APromptWithoutMemoryForItsLogprobsFailsAlone) {
  constexpr int64_t kVocab = 8;
  std::vector<Sequence> sequences(2);
  for (std::size_t i = 0; i < 2; ++i) {
    sequences[i].request.prompt.assign(i == 0 ? 4000 : 3, 1);
    sequences[i].request.sampling.prompt_logprobs = 2;
    sequences[i].tokens = sequences[i].request.prompt;
  }
  test::TestStream stream{1};
  HostLogits logits(stream, {.dtype = DType::kF32, .max_rows = 2, .vocab_size = kVocab, .vocab_size_effective = kVocab});
  const Matrix values(DType::kF32, 2, kVocab);
  ThreadPool pool(1);
  StepSampler sampler(pool, {.vocab_size = kVocab, .max_sequences = 2, .max_drafts = 0});
  for (int64_t idx = 1; idx <= 2; ++idx) {  // it has failed for good
    logits.set(values.view());
    const StepSampler::PromptToken tokens[] = {{&sequences[0], idx}, {&sequences[1], idx}};
    const test::LittleMemory little(64 << 10);
    sampler.score(tokens, logits);
  }
  ASSERT_TRUE(sequences[0].sampled.failure.has_value());
  EXPECT_EQ(sequences[0].sampled.failure->code(), ErrorCode::kUnavailable);
  EXPECT_TRUE(sequences[0].sampled.prompt_logprobs.empty());
  EXPECT_FALSE(sequences[1].sampled.failure.has_value());
  ASSERT_EQ(sequences[1].sampled.prompt_logprobs.size(), 2U);
  EXPECT_EQ(sequences[1].sampled.prompt_logprobs[1].top.size(), 2U);
}

}  // namespace
}  // namespace ferry

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "runtime/engine.h"
#include "runtime/schedule/scheduler.h"
#include "tests/support/allocation_count.h"
#include "tests/support/temp_folder.h"
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

}  // namespace
}  // namespace ferry

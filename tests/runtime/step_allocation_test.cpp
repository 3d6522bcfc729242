#include <gtest/gtest.h>

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

/// The allocations of each of `num_steps` decode steps of three sequences, one of them sampled at a temperature.
std::vector<int64_t> allocations_of_decode_steps(const EngineOptions& options, int num_steps) {
  Cluster cluster(options);
  Engine engine(options, cluster);
  Scheduler scheduler(engine.scheduler_options());
  const auto now = std::chrono::steady_clock::now();
  for (int i = 0; i < 3; ++i) {
    Request request;
    request.id = std::to_string(i);
    request.prompt.resize(static_cast<std::size_t>(5 + i));
    std::iota(request.prompt.begin(), request.prompt.end(), 2);
    request.sampling.max_tokens = 64;
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
  std::vector<int64_t> allocations;
  allocations.reserve(static_cast<std::size_t>(num_steps));
  for (int i = 0; i < num_steps; ++i) {
    const int64_t before = test::num_allocations();
    step();
    allocations.push_back(test::num_allocations() - before);
  }
  return allocations;
}

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

/// A thread of the pool takes memory with its first piece of work, for which another may be quicker for many steps where cores
/// are short. What a step allocates of itself it allocates each time.
std::vector<int64_t> fewest_allocations(const EngineOptions& options) {
  constexpr int kAttempts = 5;
  std::vector<int64_t> allocations;
  for (int i = 0; i < kAttempts; ++i) {
    allocations = allocations_of_decode_steps(options, 30);
    if (allocations == std::vector<int64_t>(30, 0)) break;
  }
  return allocations;
}

TEST_F(StepAllocationTest, ADecodeStepAllocatesNothing) {
  EXPECT_EQ(fewest_allocations(options_), std::vector<int64_t>(30, 0));
}

TEST_F(StepAllocationTest, NorWithQuantisedWeights) {
  options_.quantization = Quantization{.experts = WeightType{WeightFormat::kInt8, 0}};
  EXPECT_EQ(fewest_allocations(options_), std::vector<int64_t>(30, 0));
}

TEST(AllocationCount, Counts) {
  const int64_t before = test::num_allocations();
  const auto one = std::make_unique<std::vector<int>>(3);
  EXPECT_EQ(one->size(), 3U);
  EXPECT_EQ(test::num_allocations() - before, 2);
}

}  // namespace
}  // namespace ferry

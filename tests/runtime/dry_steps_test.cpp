#include "runtime/dry_steps.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace ferry {
namespace {

const SchedulerOptions kOptions{
    .max_running = 5, .token_budget = 200, .prefill_chunk = 192, .num_blocks = 20, .block_tokens = 16, .max_context = 300};

bool has(const std::vector<DryStep>& steps, const DryStep& wanted) {
  return std::ranges::any_of(steps, [&](const DryStep& step) {
    return step.num_sequences == wanted.num_sequences && step.num_tokens == wanted.num_tokens &&
           step.num_past == wanted.num_past && step.form == wanted.form;
  });
}

TEST(DrySteps, AreOfAllSizesAndFitTheRun) {
  const std::vector<DryStep> steps = dry_steps(kOptions);
  for (const DryStep& step : steps) {
    EXPECT_LE(step.num_sequences, kOptions.max_running);
    EXPECT_LE(step.num_sequences * step.num_tokens, kOptions.token_budget);
    EXPECT_LE(step.num_past + step.num_tokens, 300);
    EXPECT_GE(step.num_past, 0);
  }
  for (const int64_t rows : {1, 2, 4, 8, 16, 32, 64, 128, 192}) {
    EXPECT_TRUE(has(steps, {1, rows, 0, DeltaForm::kChunk})) << rows;
    EXPECT_TRUE(has(steps, {1, rows, 300 - rows, DeltaForm::kChunk})) << rows;
  }
  for (const int64_t num_past : {0, 260}) EXPECT_TRUE(has(steps, {5, 40, num_past, DeltaForm::kChunk})) << num_past;
  for (const int64_t sequences : {1, 2, 4, 5}) {
    EXPECT_TRUE(has(steps, {sequences, 1, 0, DeltaForm::kRecurrent})) << sequences;
    EXPECT_TRUE(has(steps, {sequences, 1, 299, DeltaForm::kRecurrent})) << sequences;
  }
}

TEST(DrySteps, OfAShortContextFitIt) {
  SchedulerOptions options = kOptions;
  options.max_context = 3;
  for (const DryStep& step : dry_steps(options)) EXPECT_LE(step.num_past + step.num_tokens, 3);
}

}  // namespace
}  // namespace ferry

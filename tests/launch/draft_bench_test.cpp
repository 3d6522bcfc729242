#include "launch/draft_bench.h"

#include <gtest/gtest.h>

#include "launch/bench_prompts.h"
#include "runtime/base/error.h"
#include "runtime/cluster.h"

namespace ferry {
namespace {

EngineOptions demo_options(Speculation speculation) {
  EngineOptions options{.model = checkpoint_named("demo"), .threads = 1};
  options.memory_bytes = int64_t{64} << 20;
  options.max_context = 256;
  options.speculation = speculation;
  return options;
}

TEST(DraftBench, CountsWhatStepsGaveAndWhatTheyTouched) {
  const EngineOptions options = demo_options({Speculation::Source::kMtp, 2});
  Cluster cluster(options);
  Engine engine(options, cluster);
  DraftBench bench(engine);
  const auto prompts = opening_prompts(*engine.tokenizer(), 3, 32);
  const DraftRun plain = bench.run(prompts, 12, Drafting::kOff), drafted = bench.run(prompts, 12, Drafting::kOn);
  EXPECT_FALSE(first_difference(plain, drafted));
  EXPECT_EQ(plain.num_steps, 12);
  EXPECT_EQ(plain.num_tokens, 36);
  EXPECT_EQ(plain.drafts.tried[0], 0);
  EXPECT_GE(drafted.num_tokens, 36);
  EXPECT_LT(drafted.num_steps, 12);
  EXPECT_GT(drafted.drafts.right[0], 0);
  EXPECT_EQ(drafted.drafts.tokens, drafted.num_tokens);
  // Three rows choose 8 experts each, which share some; the rows of drafts choose further ones.
  const int64_t layers = engine.config().num_layers(), top_k = engine.config().moe.top_k;
  EXPECT_GE(plain.touched_experts, 12 * layers * top_k);
  EXPECT_LE(plain.touched_experts, 12 * layers * top_k * 3);
  EXPECT_GT(static_cast<double>(drafted.touched_experts) / static_cast<double>(drafted.num_steps),
            static_cast<double>(plain.touched_experts) / static_cast<double>(plain.num_steps));
  EXPECT_LE(drafted.touched_experts, drafted.num_steps * layers * engine.config().moe.num_experts);
}

TEST(DraftBench, OneSequenceTouchesTopKExpertsOfEachLayer) {
  const EngineOptions options = demo_options({Speculation::Source::kMtp, 1});
  Cluster cluster(options);
  Engine engine(options, cluster);
  DraftBench bench(engine);
  const DraftGain gain = measure_drafts(bench, opening_prompts(*engine.tokenizer(), 1, 32), 6, 1, engine.config().num_layers());
  EXPECT_EQ(gain.plain_touched_experts, static_cast<double>(engine.config().moe.top_k));
  EXPECT_GT(gain.touched_experts, gain.plain_touched_experts);
  EXPECT_LE(gain.touched_experts, 2 * gain.plain_touched_experts);
}

TEST(DraftBench, NamesTheFirstTokenThatDiffers) {
  DraftRun x, y;
  x.tokens = {{1, 2, 3}, {4, 5}};
  y.tokens = {{1, 2}, {4, 6, 7}};
  const auto difference = first_difference(x, y);
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->sequence, 1);
  EXPECT_EQ(difference->token, 1);
  y.tokens[1] = {4, 5, 7, 8};
  EXPECT_FALSE(first_difference(x, y)) << "one has only come further";
}

TEST(DraftCount, AddsUp) {
  DraftCount x, y;
  x.add(2, 1);
  y.add(1, 1);
  y.add(0, 0);
  x += y;
  EXPECT_EQ(x.sequence_steps, 3);
  EXPECT_EQ(x.tokens, 5);
  EXPECT_EQ(x.tried[0], 2);
  EXPECT_EQ(x.right[0], 2);
  EXPECT_EQ(x.tried[1], 1);
  EXPECT_EQ(x.right[1], 0);
  EXPECT_DOUBLE_EQ(x.tokens_per_step(), 5.0 / 3);
  EXPECT_EQ(DraftCount().tokens_per_step(), 1);
}

TEST(DraftTime, SharesOutTheRestOfAStepByItsRows) {
  DraftTime time;
  time.add(/*step_seconds=*/10, /*draft_seconds=*/2, /*num_rows=*/4, /*num_wrong=*/1);
  time.add(1, 0, 3, 0);
  EXPECT_DOUBLE_EQ(time.steps, 11);
  EXPECT_DOUBLE_EQ(time.drafting, 2);
  EXPECT_DOUBLE_EQ(time.wasted, 2);
}

}  // namespace
}  // namespace ferry

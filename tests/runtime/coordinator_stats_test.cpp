#include <gtest/gtest.h>

#include <optional>

#include "runtime/coordinator.h"
#include "runtime/engine.h"
#include "runtime/engine_stats.h"
#include "tests/support/completion.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace ferry {
namespace {

using test::make_request;

int64_t num_values(const Histogram& histogram) {
  int64_t count = 0;
  for (const int64_t each : histogram.counts()) count += each;
  return count;
}

class CoordinatorStatsTest : public testing::Test {
 protected:
  CoordinatorStatsTest() {
    test::TinyModel().write(dir_.path());
    options_.model = dir_.path();
    options_.threads = 2;
    options_.memory_bytes = int64_t{64} << 20;
    options_.max_seqs = 1;
    options_.max_waiting = 1;
    options_.peer_timeout_s = 3600;  // a test holds the engine's thread
    cluster_.emplace(options_);
    engine_.emplace(options_, *cluster_);
    coordinator_.emplace(*engine_);
  }

  test::TempFolder dir_;
  EngineOptions options_;
  std::optional<Cluster> cluster_;
  std::optional<Engine> engine_;
  std::optional<Coordinator> coordinator_;
};

Request made_request(std::size_t num_prompt, int32_t num_tokens) {
  Request request = make_request(std::vector<TokenId>(num_prompt, TokenId{5}), num_tokens);
  request.sampling.ignore_eos = true;
  return request;
}

TEST_F(CoordinatorStatsTest, AFinishedRequestIsCounted) {
  test::complete(*coordinator_, made_request(10, 4));
  EngineStats stats = coordinator_->stats();  // its last event has been told
  EXPECT_EQ(stats.count_of(FinishReason::kLength), 1);
  EXPECT_EQ(num_values(stats.total_s), 1);
  test::complete(*coordinator_, made_request(30, 1));
  stats = coordinator_->stats();
  EXPECT_EQ(stats.count_of(FinishReason::kLength), 2);
  EXPECT_EQ(stats.prompt_tokens, 40);
  EXPECT_EQ(stats.generation_tokens, 5);
  EXPECT_EQ(num_values(stats.first_token_s), 2);
  EXPECT_EQ(stats.prompt_lengths.sum(), 40);
  EXPECT_EQ(stats.completion_lengths.sum(), 5);
  EXPECT_EQ(stats.num_completions.sum(), 2);
  EXPECT_EQ(num_values(stats.per_token_s), 1) << "the second one has a first token only";
  EXPECT_EQ(stats.step_tokens.sum(), 45);
  EXPECT_EQ(num_values(stats.step_tokens), coordinator_->load().steps);
  EXPECT_NEAR(stats.inference_s.sum(), stats.prefill_s.sum() + stats.decode_s.sum(), 1e-6);
  EXPECT_GT(stats.touched.layers, 0);
  EXPECT_GE(stats.touched.experts, stats.touched.layers);
  EXPECT_EQ(stats.transport.bytes_out, 0) << "all experts are here";
}

TEST_F(CoordinatorStatsTest, AnAbortedRequestIsCounted) {
  test::HeldRequest held(*coordinator_, made_request(10, 1000));
  EXPECT_TRUE(coordinator_->abort("", test::HeldRequest::kId));
  held.finish();
  EXPECT_EQ(coordinator_->stats().count_of(FinishReason::kAborted), 1);
}

TEST_F(CoordinatorStatsTest, ARefusedRequestIsCounted) {
  test::HeldRequest held(*coordinator_, made_request(10, 20));
  test::Completion waiting;
  coordinator_->submit(made_request(10, 20), waiting.sink());
  EXPECT_EQ(coordinator_->stats().rejected, 0);
  test::expect_error([&] { coordinator_->submit(made_request(10, 20), [](const GenerateEvent&) {}); },
                     ErrorCode::kResourceExhausted, {"queue is full"});
  EXPECT_EQ(coordinator_->stats().rejected, 1);
  held.finish();
  waiting.wait();
}

}  // namespace
}  // namespace ferry

#include "launch/bench_driver.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "profiler/recorder.h"
#include "runtime/base/error.h"
#include "runtime/cluster.h"
#include "tests/support/eventually.h"

namespace ferry {
namespace {

constexpr int64_t kPrompt = 8;

std::string bytes_of(HostLogits& logits, int64_t row) {
  const ConstMatrixView all = logits.all_values();
  return {reinterpret_cast<const char*>(all.row_bytes(row)), static_cast<std::size_t>(all.cols * dtype_bytes(all.dtype))};
}

class BenchDriverTest : public ::testing::Test {
 protected:
  static EngineOptions demo() {
    EngineOptions options{.model = checkpoint_named("demo"), .threads = 1};
    options.memory_bytes = int64_t{64} << 20;
    options.max_context = 300;
    options.prefill_chunk = 64;
    return options;
  }

  EngineOptions options_ = demo();
  Cluster cluster_{options_};
  Engine engine_{options_, cluster_};
  BenchDriver driver_{engine_, {.first_tokens = 300, .further_tokens = 150}};
};

TEST_F(BenchDriverTest, ASequenceGoesBackToTheSameBits) {
  for (const int64_t context : {0, 100}) {
    driver_.set_context(3, context);
    for (int64_t s = 0; s < 3; ++s) driver_.kept_prompt(s, kPrompt);
    const std::string first = bytes_of(driver_.decode(3, context + kPrompt), 2);
    EXPECT_NE(bytes_of(driver_.decode(3, context + kPrompt), 2), first) << "the state has moved on";
    driver_.go_back(3);
    EXPECT_EQ(bytes_of(driver_.decode(3, context + kPrompt), 2), first);
  }
}

TEST_F(BenchDriverTest, AContextIsThatOfAPromptThatWasComputedWhole) {
  driver_.set_context(1, 0);
  driver_.begin(0);
  driver_.prompt(0, 128 + kPrompt);
  const std::string whole = bytes_of(driver_.decode_alone(0, 128 + kPrompt), 0);
  driver_.set_context(2, 128);  // where serving would cut it, too
  driver_.begin(0);
  driver_.prompt(0, kPrompt);
  EXPECT_EQ(bytes_of(driver_.decode_alone(0, 128 + kPrompt), 0), whole);
}

TEST_F(BenchDriverTest, SequencesHaveBlocksAndTextsOfTheirOwn) {
  driver_.set_context(3, 100);
  for (int64_t s = 0; s < 3; ++s) driver_.kept_prompt(s, kPrompt);
  HostLogits& logits = driver_.decode(3, 100 + kPrompt);
  const std::string rows[] = {bytes_of(logits, 0), bytes_of(logits, 1), bytes_of(logits, 2)};
  EXPECT_NE(rows[0], rows[1]);
  EXPECT_NE(rows[1], rows[2]);
  driver_.go_back(3);
  for (int64_t s = 0; s < 3; ++s) EXPECT_EQ(bytes_of(driver_.decode_alone(s, 100 + kPrompt), 0), rows[s]) << s;
}

TEST_F(BenchDriverTest, HasRoomForAsManyAsBlocksAreThere) {
  const SchedulerOptions& limits = engine_.scheduler_options();
  const int64_t first = (300 + limits.block_tokens - 1) / limits.block_tokens;
  const BenchDriver none(engine_, {.first_tokens = limits.num_blocks * limits.block_tokens + 1, .further_tokens = 1});
  EXPECT_EQ(none.max_sequences(), 0);
  const BenchDriver one(engine_, {.first_tokens = limits.num_blocks * limits.block_tokens, .further_tokens = 1});
  EXPECT_EQ(one.max_sequences(), 1);
  const int64_t left = (limits.num_blocks - first) * limits.block_tokens;
  const BenchDriver two(engine_, {.first_tokens = 300, .further_tokens = std::min<int64_t>(left, 300)});
  EXPECT_GE(two.max_sequences(), 2);
}

TEST_F(BenchDriverTest, ExpertsReadAreCountedWhereTheyAreAsked) {
  driver_.set_context(1, 0);
  driver_.kept_prompt(0, kPrompt);
  const int64_t read = driver_.count_experts_read([&] { driver_.decode_alone(0, kPrompt); });
  EXPECT_EQ(read, engine_.config().num_layers() * engine_.config().moe.top_k);
}

/// Else all that a capture knows of the coordinator's counters is their sum over everything between the steps, too. A step that
/// ends while the machine's counters are read leaves its threads to a later one.
TEST_F(BenchDriverTest, ACaptureCountsWhatThreadsDidInSteps) {
  recorder().register_thread("engine");
  driver_.set_context(1, 0);
  const auto has_reading_of_a_step = [&] {
    recorder().start({.level = TraceLevel::kOperators});
    eventually([] { return recorder().counters().is_counting(); }, "the capture to count");
    driver_.kept_prompt(0, kPrompt);
    return std::ranges::any_of(recorder().stop().counters.readings,
                               [](const CounterReading& reading) { return reading.tid != 0 && reading.step != kNoStep; });
  };
  eventually(has_reading_of_a_step, "a capture with what a thread did in a step");
}

}  // namespace
}  // namespace ferry

#include "profiler/span_chain.h"

#include <gtest/gtest.h>

#include <thread>

#include "profiler/span.h"

namespace ferry {
namespace {

/// Returns in a later tick than it was called.
void pass_a_tick() {
  for (const uint64_t now = now_ticks(); now_ticks() == now;) {
  }
}

class SpanChainTest : public testing::Test {
 protected:
  void SetUp() override {
    recorder().register_thread("test");
    recorder().start({.level = TraceLevel::kOperators});
  }
  void TearDown() override {
    if (recorder().is_capturing()) recorder().stop();
  }

  static void span(Zone zone) {
    const Span recorded(zone);
    pass_a_tick();
  }

  /// What the calling thread recorded, as it ended.
  static std::vector<SpanRecord> stop() {
    for (ThreadCapture& thread : recorder().stop().threads) {
      if (thread.name == "test") return std::move(thread.records);
    }
    return {};
  }
};

TEST_F(SpanChainTest, NeighboursShareATick) {
  const uint64_t before = now_ticks();
  {
    const SpanChain chain;
    span(Zone::kAdd);
    pass_a_tick();  // is the norm's, though it should not be there
    span(Zone::kInputNorm);
    span(Zone::kRouter);
  }
  pass_a_tick();
  span(Zone::kSample);
  const std::vector<SpanRecord> records = stop();
  ASSERT_EQ(records.size(), 4U);
  EXPECT_GE(records[0].begin, before);
  EXPECT_EQ(records[1].begin, records[0].end);
  EXPECT_GT(records[1].end, records[1].begin);
  EXPECT_EQ(records[2].begin, records[1].end);
  EXPECT_GT(records[3].begin, records[2].end) << "it is in no chain";
}

TEST_F(SpanChainTest, WhatIsWithinASpanIsNoneOfItsChain) {
  {
    const SpanChain chain;
    span(Zone::kAdd);
    {
      const Span outer(Zone::kExperts);
      pass_a_tick();
      span(Zone::kGroupedGateUp);
      pass_a_tick();
      const SpanChain inner;
      span(Zone::kExpertQuantize);
      span(Zone::kGroupedDown);
      pass_a_tick();
    }
    span(Zone::kCombine);
  }
  const std::vector<SpanRecord> records = stop();  // add, gate and up, quantize, down, experts, combine
  ASSERT_EQ(records.size(), 6U);
  const SpanRecord &add = records[0], &gate_up = records[1], &quantize = records[2], &down = records[3], &experts = records[4],
                   &combine = records[5];
  EXPECT_EQ(experts.begin, add.end);
  EXPECT_GT(gate_up.begin, experts.begin) << "time of the outer span before it is the outer span's own";
  EXPECT_GT(quantize.begin, gate_up.end) << "the inner chain begins after it";
  EXPECT_EQ(down.begin, quantize.end);
  EXPECT_GT(experts.end, down.end);
  EXPECT_EQ(combine.begin, experts.end);
}

TEST_F(SpanChainTest, AChainInAChainGoesOn) {
  {
    const SpanChain chain;
    span(Zone::kAdd);
    {
      const SpanChain inner;
      span(Zone::kInputNorm);
    }
    span(Zone::kRouter);
  }
  const std::vector<SpanRecord> records = stop();
  ASSERT_EQ(records.size(), 3U);
  EXPECT_EQ(records[1].begin, records[0].end);
  EXPECT_EQ(records[2].begin, records[1].end);
}

TEST_F(SpanChainTest, AnotherThreadIsInNoChain) {
  const SpanChain chain;
  span(Zone::kAdd);
  std::thread([] {
    recorder().register_thread("other");
    span(Zone::kInputNorm);
  }).join();
  for (const ThreadCapture& thread : recorder().stop().threads) {
    if (thread.name != "other") continue;
    ASSERT_EQ(thread.records.size(), 1U);
    EXPECT_GT(thread.records[0].end, thread.records[0].begin);
    return;
  }
  FAIL() << "the other thread recorded nothing";
}

TEST_F(SpanChainTest, SelfTimesOfAChainAddUp) {
  const uint64_t before = now_ticks();
  {
    const SpanChain chain;
    for (int i = 0; i < 100; ++i) span(Zone::kAdd);
  }
  const uint64_t after = now_ticks();
  const std::vector<SpanRecord> records = stop();
  uint64_t sum = 0;
  for (const SpanRecord& record : records) sum += record.end - record.begin;
  EXPECT_EQ(sum, records.back().end - records.front().begin) << "to the tick: nothing twice, nothing lost";
  EXPECT_LE(sum, after - before);
}

}  // namespace
}  // namespace ferry

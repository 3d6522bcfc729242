#include "moe/routing/routing_recorder.h"

#include <gtest/gtest.h>

#include <array>

#include "moe/routing/routing_rows.h"
#include "tests/moe/routing/small_routing.h"
#include "tests/support/expect_error.h"

namespace ferry {
namespace {

using Ids = std::vector<int32_t>;

RoutingShape two_layers() { return {.model = "m", .num_experts = 4, .top_k = 2, .layers = {0, 2}}; }

void route(RoutingHook& hook, int64_t layer, int64_t first_row, Ids ids) { EXPECT_FALSE(hook.routed(layer, first_row, ids)); }

TEST(RoutingRecorder, AStepOfBothKindsIsTwoWithOneNumber) {
  RoutingRecorder recorder(two_layers(), 1 << 20);
  recorder.begin_step(5);
  recorder.add_rows(RoutingPhase::kDecode, 1);
  recorder.add_rows(RoutingPhase::kPrefill, 2);
  recorder.add_rows(RoutingPhase::kDecode, 1);
  route(recorder, 0, 0, {0, 1, 1, 2});  // in two halves
  route(recorder, 0, 2, {2, 3, 3, 0});
  route(recorder, 2, 0, {1, 0, 2, 1, 3, 2, 0, 3});
  route(recorder, 3, 0, {1, 0, 2, 1, 3, 2, 0, 3});  // a layer behind those of the shape
  const RoutingTrace trace = recorder.take();
  ASSERT_EQ(trace.steps.size(), 2U);
  EXPECT_EQ(trace.steps[0].id, 5);
  EXPECT_EQ(trace.steps[0].phase, RoutingPhase::kPrefill);
  EXPECT_EQ(trace.steps[1].id, 5);
  EXPECT_EQ(trace.ids, (std::vector<uint16_t>{1, 2, 2, 3, 2, 1, 3, 2, 0, 1, 3, 0, 1, 0, 0, 3}));
}

TEST(RoutingRecorder, WhatFindsNoRoomIsCounted) {
  RoutingRecorder recorder(two_layers(), 2 * 2 * 2 * 2 * static_cast<int64_t>(sizeof(uint16_t)));  // two rows, twice
  for (int64_t step = 0; step < 4; ++step) {
    recorder.begin_step(step);
    const int64_t rows = step == 1 ? 3 : 2;
    recorder.add_rows(RoutingPhase::kDecode, rows);
    for (const int64_t layer : {0, 2}) route(recorder, layer, 0, Ids(static_cast<std::size_t>(2 * rows), 1));
  }
  const RoutingTrace trace = recorder.take();
  EXPECT_EQ(trace.steps.size(), 2U);
  EXPECT_EQ(trace.num_left_out, 2);
  EXPECT_EQ(trace.ids.size(), 16U);
}

TEST(RoutingRecorder, AStepThatFailedHalfwayIsNotInIt) {
  RoutingRecorder recorder(two_layers(), 1 << 20);
  recorder.begin_step(0);
  recorder.add_rows(RoutingPhase::kDecode, 1);
  route(recorder, 0, 0, {0, 1});
  recorder.begin_step(1);
  recorder.add_rows(RoutingPhase::kDecode, 1);
  route(recorder, 0, 0, {2, 1});
  route(recorder, 2, 0, {2, 3});
  const RoutingTrace trace = recorder.take();
  ASSERT_EQ(trace.steps.size(), 1U);
  EXPECT_EQ(trace.ids, (std::vector<uint16_t>{2, 1, 2, 3}));
  EXPECT_EQ(trace.steps[0].first, 0U);
}

TEST(RoutingReplay, SequencesReadRecordedRowsWhateverIsBesideThem) {
  const RoutingTrace trace = test::small_routing();
  RoutingReplay replay(trace, "trace");
  replay.begin_step();
  replay.add_rows(RoutingPhase::kPrefill, 0, 1, 2);  // tokens 1 and 2 of the prompt
  replay.add_rows(RoutingPhase::kDecode, 1, 1, 1);   // row 1 of the second decode step
  Ids ids(6, 0);
  EXPECT_TRUE(replay.routed(3, 0, ids));
  EXPECT_EQ(ids, (Ids{3, 1, 3, 0, 1, 2}));
  Ids last(2, 0);
  EXPECT_TRUE(replay.routed(1, 2, last));  // of the second half of the rows
  EXPECT_EQ(last, (Ids{0, 1}));
  EXPECT_FALSE(replay.routed(2, 0, ids));  // a layer that was not recorded keeps its choice
}

TEST(RoutingReplay, RowsOfOneKindStandForTheOther) {
  RoutingTrace trace = test::small_routing();
  trace.steps.resize(1);
  const RoutingRows rows(trace);
  EXPECT_EQ(rows.row(RoutingPhase::kDecode, 0, 4).row, 1);
  EXPECT_NE(rows.row(RoutingPhase::kDecode, 1, 4).row, 1);
  trace.steps.clear();
  test::expect_error([&] { RoutingReplay(trace, "x"); }, ErrorCode::kInvalidArgument,
                     {"x: routing of no step; allowed: of at least one"});
}

TEST(RoutingReplay, ManyRowsAreCountedAsIfOneByOne) {
  const RoutingTrace trace = test::small_routing();
  const RoutingRows rows(trace);
  using Counts = std::vector<int32_t>;
  for (const RoutingPhase phase : {RoutingPhase::kPrefill, RoutingPhase::kDecode}) {
    for (const int64_t count : {1, 2, 3, 7, 100}) {
      Counts expected(4, 0), counted(4, 0);
      for (int64_t i = 0; i < count; ++i) {
        const RoutingRows::Row row = rows.row(phase, 1, 5 + i);
        for (const uint16_t id : trace.of(*row.step, 1, row.row)) ++expected[id];
      }
      rows.add_rows(phase, 1, 5, count, 1, counted);
      EXPECT_EQ(counted, expected) << count;
    }
  }
  Counts counted(4, 0);
  rows.add_rows(RoutingPhase::kPrefill, 0, 0, 3 << 29, 0, counted);  // each recorded row 2^29 times
  EXPECT_EQ(counted, (Counts{3 << 29, 1 << 29, 1 << 29, 1 << 29}));
}

TEST(RoutingReplay, StepsWithFewRowsDoNotStandForManySequences) {
  RoutingTrace trace = test::small_routing();
  trace.steps.push_back({.id = 10, .phase = RoutingPhase::kDecode, .num_rows = 1, .first = 20});
  const RoutingRows rows(trace);
  std::array<bool, 2> is_read{};
  for (int64_t p = 0; p < 4; ++p) {
    const RoutingRows::Row row = rows.row(RoutingPhase::kDecode, 1, p);
    EXPECT_EQ(row.row, 1);
    is_read[static_cast<std::size_t>(row.step->id - 8)] = true;
  }
  EXPECT_TRUE(is_read[0] && is_read[1]);
}

}  // namespace
}  // namespace ferry

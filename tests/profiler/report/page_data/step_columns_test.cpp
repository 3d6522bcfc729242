#include "profiler/report/page_data/step_columns.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/profiler/report/page_data/unpacked_step.h"
#include "tests/support/made_capture.h"
#include "tests/support/small_capture.h"

namespace ferry {
namespace {

using test::UnpackedStep;

/// Slices that touch the step, on lanes other than those of requests.
std::multiset<std::tuple<int64_t, int64_t, int64_t, uint64_t>> expected_slices(const ReportInput& input, const StepInfo& step) {
  std::multiset<std::tuple<int64_t, int64_t, int64_t, uint64_t>> found;
  for (const Slice& slice : input.timeline.slices) {
    if (input.timeline.lanes[static_cast<std::size_t>(slice.lane)].kind == Lane::Kind::kRequest) continue;
    if (slice.end_ns <= step.begin_ns || slice.begin_ns >= step.end_ns) continue;
    found.emplace(slice.lane, slice.begin_ns - step.begin_ns, slice.duration_ns(), static_cast<uint64_t>(slice.zone));
  }
  return found;
}

TEST(StepColumns, HoldEverySliceThatTouchesTheStep) {
  const ReportInput input(make_made_capture({.world_size = 4, .num_layers = 6}));
  const StepColumns columns(input);
  for (std::size_t s = 0; s < input.timeline.steps.size(); ++s) {
    const UnpackedStep step(columns.pack(s));
    std::multiset<std::tuple<int64_t, int64_t, int64_t, uint64_t>> found;
    std::size_t i = 0;
    for (const auto& [lane, size] : step.lanes) {
      for (const std::size_t last = i + size; i < last; ++i)
        found.emplace(columns.lanes().at(lane), step.begin[i], step.duration[i], step.zone[i]);
    }
    EXPECT_EQ(found, expected_slices(input, input.timeline.steps[s]));
    EXPECT_EQ(found.size(), columns.count_slices(s));
    EXPECT_GT(found.size(), 50U);
  }
}

TEST(StepColumns, ArrowsLeadFromRankToRank) {
  const ReportInput input(make_made_capture({.world_size = 3, .num_layers = 4}));
  const StepColumns columns(input);
  const UnpackedStep step(columns.pack(3));
  std::vector<int32_t> rank_of;
  for (const auto& [lane, size] : step.lanes)
    rank_of.insert(rank_of.end(), size, input.timeline.lanes[static_cast<std::size_t>(columns.lanes().at(lane))].rank);
  const Zone ends[3][2] = {{Zone::kDispatch, Zone::kExperts}, {Zone::kExperts, Zone::kCombine}, {}};
  for (std::size_t kind = 0; kind < 2; ++kind) {
    EXPECT_EQ(step.arrows[kind].size(), 8U);  // two workers in four layers
    for (const auto& [from, to] : step.arrows[kind]) {
      EXPECT_EQ(step.zone.at(from), static_cast<uint64_t>(ends[kind][0]));
      EXPECT_EQ(step.zone.at(to), static_cast<uint64_t>(ends[kind][1]));
      EXPECT_NE(rank_of.at(from), rank_of.at(to));
      EXPECT_EQ(step.layer.at(from), step.layer.at(to));
    }
  }
  EXPECT_EQ(step.arrows[2].size(), 16U);  // there and back
  for (const auto& [from, to] : step.arrows[2]) {
    EXPECT_EQ(static_cast<int32_t>(step.b.at(from)), rank_of.at(to));
    EXPECT_EQ(static_cast<int32_t>(step.b.at(to)), rank_of.at(from));
    EXPECT_EQ(step.layer.at(from), step.layer.at(to));
  }
}

TEST(StepColumns, TheCriticalPathIsThatOfTheStep) {
  const ReportInput input(make_made_capture({.world_size = 3, .num_layers = 4, .slow_rank = 2, .slow_factor = 3}));
  const StepColumns columns(input);
  std::vector<PathPiece> expected;
  for (const PathPiece& piece : input.critical_path) {
    if (piece.step == 3) expected.push_back(piece);
  }
  const UnpackedStep step(columns.pack(3));
  ASSERT_EQ(step.path_kind.size(), expected.size());
  ASSERT_GT(expected.size(), 10U);
  int64_t at_ns = input.timeline.steps[3].begin_ns;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(step.path_kind[i], static_cast<uint64_t>(expected[i].kind));
    EXPECT_EQ(step.path_rank[i], static_cast<uint64_t>(expected[i].rank));
    EXPECT_EQ(at_ns, expected[i].begin_ns);
    at_ns += static_cast<int64_t>(step.path_duration[i]);
    EXPECT_EQ(at_ns, expected[i].end_ns);
    if (expected[i].kind == PathKind::kMessage) {
      EXPECT_EQ(static_cast<int32_t>(step.path_peer[i]) - 1, path_piece_peer(input.timeline, expected[i]));
    }
    if (expected[i].slice < 0) continue;
    ASSERT_GT(step.path_slice[i], 0U);
    EXPECT_EQ(step.zone.at(step.path_slice[i] - 1),
              static_cast<uint64_t>(input.timeline.slices[static_cast<std::size_t>(expected[i].slice)].zone));
  }
  EXPECT_EQ(at_ns, input.timeline.steps[3].end_ns);
}

TEST(StepColumns, ASliceFromLongBeforeIsThere) {
  test::SmallCapture small(2, 5000);
  small.step(7, Phase::kDecode, 1000, 2000, 1, 1)
      .step(8, Phase::kDecode, 3000, 4000, 1, 1)
      .span(1, Zone::kWaitDispatch, 10, 3500)
      .span(1, Zone::kReadExperts, 20, 30)  // nested in the wait, over before the step
      .span(0, Zone::kLmHead, 3100, 3200, 5);
  const ReportInput input(small.capture);
  const StepColumns columns(input);
  const UnpackedStep step(columns.pack(1));
  ASSERT_EQ(step.zone.size(), 3U);
  EXPECT_EQ(step.begin, (std::vector<int64_t>{0, 100, 10 - 3000}));
  EXPECT_EQ(step.duration, (std::vector<uint64_t>{1000, 100, 3490}));
  EXPECT_EQ(step.a.at(1), 5U);
  EXPECT_EQ(step.layer, (std::vector<uint64_t>{0, 0, 0}));  // of none
}

}  // namespace
}  // namespace ferry

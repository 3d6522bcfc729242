#include "runtime/trace/load_marks.h"

#include <gtest/gtest.h>

#include <vector>

#include "profiler/tick_clock.h"

namespace ferry {
namespace {

constexpr int64_t kLayers = 2, kExperts = 4;

/// One row of every layer to one expert.
void step(ExpertLoad& load) {
  for (int64_t l = 0; l < kLayers; ++l) load.record(l, std::vector<int32_t>{static_cast<int32_t>(l)});
}

TEST(LoadMarksTest, TellsTheRowsSinceAMoment) {
  ExpertLoad load(kLayers, kExperts);
  step(load);
  LoadMarks marks(load);
  for (int s = 0; s < 10; ++s) {
    step(load);
    marks.note(load, 0);
  }
  while (now_ticks() == marks.first_from(now_ticks()).ticks) {  // a coarse clock may stand since the last mark
  }
  const uint64_t now = now_ticks();
  step(load);
  marks.note(load, 0);
  EXPECT_EQ(marks.first_from(0).tokens[0], 1);
  const LoadMarks::Mark mark = marks.first_from(now);
  EXPECT_GE(mark.ticks, now);
  EXPECT_EQ(mark.tokens[0], 12);
  EXPECT_EQ(mark.tokens[kExperts + 1], 12);
  EXPECT_EQ(mark.tokens[1], 0);
  EXPECT_EQ(marks.first_from(now_ticks()).tokens[0], 12) << "the newest";
}

TEST(LoadMarksTest, MarksGetSparseWhereTheRingsReachFurtherThanTheMemory) {
  ExpertLoad load(kLayers, kExperts);
  LoadMarks marks(load, 0);  // 16 marks
  for (int s = 0; s < 1000; ++s) {
    step(load);
    marks.note(load, 0);
  }
  EXPECT_LE(marks.first_from(0).tokens[0], 250) << "they still reach back most of the way";
  const int64_t newest = marks.first_from(now_ticks()).tokens[0];
  EXPECT_GT(newest, 800);
}

TEST(LoadMarksTest, MarksThatNoRingReachesAreGivenUp) {
  ExpertLoad load(kLayers, kExperts);
  LoadMarks marks(load, 0);
  for (int s = 0; s < 1000; ++s) {
    step(load);
    marks.note(load, now_ticks());
  }
  EXPECT_GT(marks.first_from(0).tokens[0], 900) << "one mark a step";
}

}  // namespace
}  // namespace ferry

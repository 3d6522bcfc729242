#include <gtest/gtest.h>

#include <map>

#include "profiler/report/timeline/step_slices.h"
#include "profiler/report/views/views.h"
#include "tests/support/made_capture.h"
#include "tests/support/small_capture.h"

namespace ferry {
namespace {

using test::ns;
using test::number;
using test::row_with;
using test::text;

/// The rows of each phase in ns.
std::map<std::string, int64_t> sum_by_phase(const Table& table) {
  std::map<std::string, int64_t> sums;
  for (std::size_t r = 0; r < table.rows.size(); ++r) sums[text(table, r, "phase")] += ns(table, r, "total_us");
  return sums;
}

TEST(CriticalPathViewTest, RowsOfAPhaseAddUpToItsStepsAndTheLargestComesFirst) {
  const ReportInput input(make_made_capture({.world_size = 4, .slow_rank = 3, .slow_factor = 8}));
  const Table table = make_critical_path_view(input);
  std::map<std::string, int64_t> steps;
  for (const StepInfo& step : input.timeline.steps) steps[phase_name(step.phase)] += step.end_ns - step.begin_ns;
  EXPECT_EQ(sum_by_phase(table), steps);
  std::map<std::string, double> shares;
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    shares[text(table, r, "phase")] += number(table, r, "share");
    EXPECT_LE(number(table, r, "share"), number(table, r > 0 ? r - 1 : 0, "share"));
  }
  for (const auto& [phase, share] : shares) EXPECT_NEAR(share, 1, 1e-9) << phase;
  EXPECT_EQ(number(table, 0, "rank"), 3);
  EXPECT_EQ(text(table, 0, "what"), "GroupedMatmulSwiglu");
}

TEST(CriticalPathViewTest, TellsMessagesWaitsAndStopsApart) {
  test::SmallCapture small(2, 100'000);
  for (const uint32_t s : {0U, 1U}) {
    const uint64_t t = 10'000 * s;
    small.step(s, Phase::kDecode, t, t + 10'000, 1, 1);
    small.span(0, Zone::kAttention, t, t + 1000, 1, 1, {s, 0});
    small.span(1, Zone::kWaitDispatch, t, t + 1500, 0, 0, {s, 0});
    small.exchange(1, {s, 0}, t + 1000, t + 1500, t + 6000, t + 6200, 4);
    small.span(0, Zone::kWaitCombine, t + 1000, t + 6200, 0, 1, {s, 0});
    small.span(0, Zone::kWaitCombine, t + 6200, t + 6300, 0, 1, {s, 1});  // of which nothing else is known
    small.span(0, Zone::kSample, t + 6300, t + 8000, 1, 0, {s, kNoLayer});
  }
  small.capture.ranks[1].threads.push_back({.name = "watch", .tid = 900, .num_lost = 0, .records = {}});
  small.capture.ranks[1].threads[1].records.push_back({.begin = 2000, .end = 3000, .zone = Zone::kNotRunning});
  const ReportInput input(small.capture);
  const Table table = make_critical_path_view(input);
  const auto row = [&](int64_t rank, const char* kind, const char* what) {
    return row_with(table, {{"rank", rank}, {"kind", kind}, {"what", what}});
  };
  const std::size_t rows = row(1, "message", "rows from rank 0"), reply = row(0, "message", "reply from rank 1");
  EXPECT_EQ(ns(table, rows, "total_us"), 1000);
  EXPECT_EQ(number(table, rows, "peer"), 0);
  EXPECT_EQ(ns(table, reply, "total_us"), 400);
  EXPECT_EQ(ns(table, reply, "us_per_step"), 200);
  EXPECT_EQ(number(table, reply, "count"), 2);
  EXPECT_EQ(number(table, reply, "share"), 0.02);
  EXPECT_EQ(number(table, reply, "peer"), 1);
  EXPECT_EQ(ns(table, row(1, "compute", "GroupedMatmulSwiglu"), "total_us"), 8000);
  const std::size_t stop = row(1, "not running", "not running");
  EXPECT_EQ(ns(table, stop, "total_us"), 1000);
  EXPECT_TRUE(test::is_empty(table, stop, "peer"));
  EXPECT_EQ(number(table, row(0, "wait", "wait.combine"), "peer"), 1);
  EXPECT_EQ(ns(table, row(0, "host", "not recorded"), "total_us"), 4000);
}

TEST(CriticalPathViewTest, SectionsAreApartAndThoseOfWarmUpsTheLast) {
  test::SmallCapture small(1, 100'000);
  small.step(0, Phase::kDecode, 0, 1000, 1, 1).span(0, Zone::kAdd, 0, 1000, 1, 0, {0, 0});
  small.step(1, Phase::kDecode, 1000, 2000, 1, 1).span(0, Zone::kAdd, 1000, 1900, 1, 0, {1, 0});
  small.span(0, Zone::kSection, 0, 1000, 1, pack_section(SectionRole::kWarmUp, Phase::kDecode));
  small.span(0, Zone::kSection, 1000, 2000, 1, pack_section(SectionRole::kMeasured, Phase::kDecode));
  const ReportInput input(small.capture);
  const Table table = make_critical_path_view(input);
  ASSERT_EQ(table.rows.size(), 3U);
  EXPECT_EQ(text(table, 0, "phase"), "decode ×1");
  EXPECT_EQ(text(table, 1, "what"), "not recorded");
  EXPECT_EQ(text(table, 2, "phase"), "decode ×1 warm-up");
  EXPECT_EQ(number(table, 2, "share"), 1.0);
}

}  // namespace
}  // namespace ferry

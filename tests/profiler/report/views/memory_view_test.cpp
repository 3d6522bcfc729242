#include <gtest/gtest.h>

#include <map>
#include <string>

#include "profiler/capture_sections.h"
#include "profiler/report/views/views.h"
#include "tests/support/small_capture.h"

namespace ferry {
namespace {

MemorySample sample(uint64_t ticks, int64_t weights, int64_t buffers, int64_t anonymous, int64_t files) {
  MemorySample made{.ticks = ticks};
  made.bytes.fill(kNotKnown);
  made[MemoryKind::kWeights] = weights;
  made[MemoryKind::kBuffers] = buffers;
  made[MemoryKind::kSwapSpace] = 0;
  made[MemoryKind::kReservedKvCache] = 9000;
  made[MemoryKind::kAnonymous] = anonymous;
  made[MemoryKind::kFiles] = files;
  return made;
}

test::SmallCapture with_memory() {
  test::SmallCapture small(2, 10'000'000);
  small.step(0, Phase::kDecode, 1000, 9'000'000, 1, 1);
  small.capture.ranks[1].memory.samples = {sample(1'000'000, 500, 100, 700, 50), sample(2'000'000, 500, 400, 1000, 60),
                                           sample(3'000'000, 500, 200, 800, 60)};
  return small;
}

std::map<std::string, std::size_t> rows_by_kind(const Table& table) {
  std::map<std::string, std::size_t> rows;
  for (std::size_t r = 0; r < table.rows.size(); ++r) rows[test::text(table, r, "kind")] = r;
  return rows;
}

TEST(MemoryView, SaysWhatWasHeldAndWhenItWasMost) {
  const Table table = make_memory_view(ReportInput(with_memory().capture));
  std::map<std::string, std::size_t> rows = rows_by_kind(table);
  EXPECT_EQ(rows.size(), 6U) << "weights, buffers, files, what is left, what is reserved, and all";
  const std::size_t buffers = rows.at("buffers");
  EXPECT_EQ(test::number(table, buffers, "rank"), 1);
  EXPECT_EQ(test::number(table, buffers, "first_bytes"), 100);
  EXPECT_EQ(test::number(table, buffers, "peak_bytes"), 400);
  EXPECT_EQ(test::number(table, buffers, "peak_at_ms"), 2);
  EXPECT_EQ(test::number(table, buffers, "last_bytes"), 200);
  EXPECT_EQ(test::number(table, rows.at("rss"), "peak_bytes"), 1060);
  EXPECT_EQ(test::number(table, rows.at("unaccounted"), "peak_bytes"), 100);
  EXPECT_EQ(test::text(table, rows.at("kv_cache_reserved"), "role"), "reserved");
  EXPECT_EQ(rows.count("swap_space"), 0U) << "it was never anything";
}

TEST(MemoryTimeline, KindsAddUpToTheResidentSet) {
  const Table table = make_memory_timeline(ReportInput(with_memory().capture));
  std::map<double, double> sums;
  for (std::size_t r = 0; r < table.rows.size(); ++r) sums[test::number(table, r, "at_ms")] += test::number(table, r, "bytes");
  EXPECT_EQ(sums, (std::map<double, double>{{1, 750}, {2, 1060}, {3, 860}}));
}

TEST(MemoryTimeline, IsThinnedToMomentsOfLargeSets) {
  test::SmallCapture small = with_memory();
  std::vector<MemorySample>& samples = small.capture.ranks[1].memory.samples;
  samples.clear();
  for (uint64_t t = 0; t < 5000; ++t)
    samples.push_back(sample(1000 * t, 500, t == 3333 ? 9999 : 1, t == 3333 ? 99'999 : 600, 0));
  const Table table = make_memory_timeline(ReportInput(small.capture));
  EXPECT_EQ(table.rows.size(), 500U * 3) << "weights, buffers, what is left";
  bool has_peak = false;
  for (std::size_t r = 0; r < table.rows.size(); ++r) has_peak = has_peak || test::number(table, r, "bytes") == 9999;
  EXPECT_TRUE(has_peak);
}

TEST(MemoryTimeline, ManyRanksHaveFewerMomentsEach) {
  test::SmallCapture small(40, 10'000'000);
  small.step(0, Phase::kDecode, 1000, 9'000'000, 1, 1);
  for (RankCapture& rank : small.capture.ranks) {
    for (uint64_t t = 0; t < 600; ++t) rank.memory.samples.push_back(sample(1000 * t, 500, 1, 600, 50));
  }
  const Table table = make_memory_timeline(ReportInput(small.capture));
  std::map<double, int> rows;
  for (std::size_t r = 0; r < table.rows.size(); ++r) ++rows[test::number(table, r, "rank")];
  ASSERT_EQ(rows.size(), 40U) << "none is left out";
  for (const auto& [rank, count] : rows)
    EXPECT_EQ(count, 49 * 4) << "8000 rows by 40 times weights, buffers, files, what is left";
}

TEST(MemoryView, AWindowKeepsWhatHeldAtItsBegin) {
  test::SmallCapture small = with_memory();
  RankCapture& rank = small.capture.ranks[1];
  rank.begin = 2'500'000;
  rank.end = 3'500'000;
  const CaptureWindow window{.first_step = 0, .last_step = 0};
  for (const CaptureSection& section : capture_sections()) section.cut(window, rank);
  ASSERT_EQ(rank.memory.samples.size(), 2U);
  EXPECT_EQ(rank.memory.samples[0].ticks, 2'500'000U);
  EXPECT_EQ(rank.memory.samples[0][MemoryKind::kBuffers], 400);
  EXPECT_EQ(rank.memory.samples[1].ticks, 3'000'000U);
}

}  // namespace
}  // namespace ferry

#include "profiler/capture_sections.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/capture_merge.h"
#include "runtime/base/error.h"
#include "tests/support/expect_error.h"
#include "tests/support/made_capture.h"
#include "tests/support/small_capture.h"

namespace ferry {
namespace {

CounterReading reading(uint32_t step, uint64_t begin, uint64_t end, int32_t tid = 100) {
  CounterReading made{.begin = begin, .end = end, .step = step, .tid = tid};
  made.values.fill(kNotCounted);
  made[Counter::kMinorFaults] = begin + 1;
  return made;
}

CounterCapture some_counters() {
  CounterCapture counters;
  counters.sources = {{Counter::kCycles, "", "no PMU (\"ENOENT\")"}, {Counter::kMinorFaults, "perf", ""}};
  counters.readings = {reading(0, 500, 1900), reading(1, 1900, 4100), reading(kNoStep, 4100, 4200, 0)};
  counters.readings[1].zone = Zone::kOProj;
  counters.readings[1].is_scaled = true;
  counters.readings[1][Counter::kDramEnergy] = 0;
  counters.num_lost = 3;
  return counters;
}

RankCapture some_rank() {
  RankCapture rank = make_made_capture().ranks[0];
  rank.counters = some_counters();
  return rank;
}

RankCapture again(const std::vector<std::byte>& bytes) { return decode_rank_capture(bytes, "rank-0.spans"); }

uint32_t format_of(const std::vector<std::byte>& bytes) {
  uint32_t format = 0;
  std::memcpy(&format, bytes.data() + 8, sizeof format);
  return format;
}

/// The file with `from` in its header become `to`, of the same length.
std::vector<std::byte> with_header(std::vector<std::byte> bytes, std::string_view from, std::string_view to) {
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string_view::npos) << from;
  EXPECT_EQ(from.size(), to.size());
  std::memcpy(bytes.data() + at, to.data(), to.size());
  return bytes;
}

TEST(CaptureSections, ComeBackAsTheyWere) {
  const RankCapture rank = some_rank();
  const std::vector<std::byte> bytes = encode_rank_capture(rank);
  EXPECT_EQ(format_of(bytes), 2U);
  EXPECT_EQ(again(bytes).counters, rank.counters);
  EXPECT_EQ(again(bytes).threads[0].records.size(), rank.threads[0].records.size());
  EXPECT_EQ(encode_rank_capture(again(bytes)), bytes);
}

TEST(CaptureSections, AFileWithoutAnyIsThatOfOlderVersions) {
  RankCapture rank = some_rank();
  rank.counters = {};
  const std::vector<std::byte> bytes = encode_rank_capture(rank);
  EXPECT_EQ(format_of(bytes), 1U);
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()).find("sections"),
            std::string_view::npos);
  EXPECT_EQ(again(bytes).counters, CounterCapture{});
}

TEST(CaptureSections, OfUnknownKindsAreSkipped) {
  const std::vector<std::byte> bytes = encode_rank_capture(some_rank());
  const RankCapture rank = again(with_header(bytes, R"("name":"counters")", R"("name":"comptoir")"));
  EXPECT_EQ(rank.counters, CounterCapture{});
  EXPECT_EQ(rank.threads[0].records.size(), some_rank().threads[0].records.size());
}

TEST(CaptureSections, CountersOfUnknownNamesAreSkipped) {
  const std::vector<std::byte> bytes = encode_counters(some_counters());
  const CounterCapture read = decode_counters(
      with_header(with_header(bytes, "\"cycles\"", "\"circus\""), "\"dram_energy\"", "\"bray_energy\""), "here");
  ASSERT_EQ(read.sources.size(), 1U);
  EXPECT_EQ(read.sources[0].counter, Counter::kMinorFaults);
  ASSERT_EQ(read.readings.size(), 3U);
  EXPECT_EQ(read.readings[1][Counter::kDramEnergy], kNotCounted);
  EXPECT_EQ(read.readings[1][Counter::kMinorFaults], 1901U);
}

TEST(CaptureSections, DamageIsRefusedWithALineThatNamesFileAndSection) {
  const std::vector<std::byte> good = encode_rank_capture(some_rank());
  const auto refuse = [&](const std::vector<std::byte>& bytes, const std::string& what) {
    test::expect_error([&] { again(bytes); }, ErrorCode::kInvalidArgument, {"rank-0.spans", what});
  };
  refuse({good.begin(), good.end() - 1}, "its section \"counters\" is cut off");
  std::vector<std::byte> longer = good;
  longer.push_back({});
  refuse(longer, "1 bytes behind its records");
  std::vector<std::byte> newer = good;
  newer[8] = std::byte{3};
  refuse(newer, "format 3");
  std::vector<std::byte> zone = good;  // the last row: 32 bytes and two values
  zone[good.size() - 16 - 8] = std::byte{0xfe};
  refuse(zone, "section counters: a reading of zone 254");
  CounterCapture twice = some_counters();
  twice.sources.push_back(twice.sources[0]);
  test::expect_error([&] { decode_counters(encode_counters(twice), "here"); }, ErrorCode::kInvalidArgument,
                     {"here: two sources of cycles"});
  const std::vector<std::byte> section = encode_counters(some_counters());
  for (std::size_t size = 0; size < section.size(); ++size) {
    if ((section.size() - size) % 48 == 0 && section.size() - size <= 3 * 48) continue;  // whole rows
    EXPECT_THROW(decode_counters(std::span(section).first(size), "here"), Error) << size;
  }
}

TEST(CaptureSections, WindowsCutThem) {
  test::SmallCapture small(1, 10'000);
  for (uint32_t s = 0; s < 4; ++s) small.step(s, Phase::kDecode, 2000 * s + 500, 2000 * s + 2000, 1, 1);
  std::vector<CounterReading>& readings = small.capture.ranks[0].counters.readings;
  for (uint32_t s = 0; s < 4; ++s) readings.push_back(reading(s, 2000 * s, 2000 * s + 2001));
  readings.push_back(reading(kNoStep, 100, 600, 0));
  readings.push_back(reading(kNoStep, 2100, 2600, 0));
  cut_to(*find_window(small.capture, 2000), small.capture);
  ASSERT_EQ(readings.size(), 4U);
  EXPECT_EQ(readings[0].step, 1U);
  EXPECT_EQ(readings[2].step, 3U);
  EXPECT_EQ(readings[3].begin, 2100U) << "reaches into it";
  cut_to_nothing(small.capture);
  EXPECT_TRUE(readings.empty());
  EXPECT_TRUE(small.capture.ranks[0].threads[0].records.empty());
}

TEST(CaptureSections, MergesRenumberTheirSteps) {
  const auto made = [] {
    test::SmallCapture small(1, 10'000);
    for (uint32_t s = 0; s < 4; ++s) small.step(s, Phase::kDecode, 2000 * s + 500, 2000 * s + 2000, 1, 1);
    small.capture.ranks[0].counters.readings = {reading(3, 6500, 8000), reading(kNoStep, 0, 9000, 0)};
    return small.capture;
  };
  const Capture merged = merge_captures({made(), made()});
  ASSERT_EQ(merged.ranks.size(), 2U);
  EXPECT_EQ(merged.ranks[0].counters.readings[0].step, 3U);
  EXPECT_EQ(merged.ranks[1].counters.readings[0].step, 7U);
  EXPECT_EQ(merged.ranks[1].counters.readings[1].step, kNoStep);
}

}  // namespace
}  // namespace ferry

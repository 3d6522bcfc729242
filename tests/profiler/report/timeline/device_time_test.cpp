#include "profiler/report/timeline/device_time.h"

#include <gtest/gtest.h>

#include "profiler/report/timeline/step_slices.h"
#include "tests/support/small_capture.h"

namespace ferry {
namespace {

Slice slice(Zone zone, int64_t begin_ns, int64_t end_ns) { return {.zone = zone, .begin_ns = begin_ns, .end_ns = end_ns}; }

/// "Add 0-10, MatMul.o_proj 10-40+" with a plus at what continues.
std::string text_of(const std::vector<Slice>& slices) {
  std::string text;
  for (const Slice& s : slices) {
    text += (text.empty() ? "" : ", ") + std::string(zone_info(s.zone).name) + " " + std::to_string(s.begin_ns) + "-" +
            std::to_string(s.end_ns) + (s.is_continued ? "+" : "");
  }
  return text;
}

TEST(DeviceTime, IsEachOperatorsOwnWhereItRanAlone) {
  EXPECT_EQ(
      text_of(share_device_time({slice(Zone::kAdd, 0, 10), slice(Zone::kOProj, 10, 40), slice(Zone::kAdd, 50, 60)}, {1, 1, 1})),
      "Add 0-10, MatMul.o_proj 10-40, Add 50-60");
}

TEST(DeviceTime, SideBySideIsDividedByWhatEachNeeds) {
  const std::vector<Slice> both = {slice(Zone::kAdd, 0, 40), slice(Zone::kOProj, 0, 40)};
  EXPECT_EQ(text_of(share_device_time(both, {1, 3})), "Add 0-10, MatMul.o_proj 10-40");
  EXPECT_EQ(text_of(share_device_time(both, {0, 3})), "Add 0-20, MatMul.o_proj 20-40") << "what one needs is not known";
  EXPECT_EQ(share_device_time(both, {1, 3})[0].num_beside, 1);
}

// The first operator's last commands run beside the second's first ones, which goes on alone.
TEST(DeviceTime, AnOperatorThatIsAloneForAWhileStaysOnePiece) {
  EXPECT_EQ(text_of(share_device_time({slice(Zone::kAdd, 0, 20), slice(Zone::kOProj, 10, 40)}, {1, 1})),
            "Add 0-15, MatMul.o_proj 15-40");
}

TEST(DeviceTime, CoversWhatTheSpansCoverToTheNanosecond) {
  std::vector<Slice> slices;
  std::vector<double> needs;
  uint32_t random = 1;
  for (int64_t i = 0; i < 400; ++i) {
    random = random * 1664525 + 1013904223;
    const int64_t begin_ns = 7 * i + random % 50;
    slices.push_back(slice(Zone::kAdd, begin_ns, begin_ns + (random >> 8) % 60));
    needs.push_back((random >> 16) % 5);
  }
  std::vector<Interval> spans, pieces;
  for (const Slice& s : slices) spans.push_back({s.begin_ns, s.end_ns});
  int64_t sum_ns = 0;
  for (const Slice& s : share_device_time(slices, needs)) {
    pieces.push_back({s.begin_ns, s.end_ns});
    sum_ns += s.duration_ns();
  }
  EXPECT_EQ(make_interval_set(pieces), make_interval_set(spans));
  EXPECT_EQ(sum_ns, total(make_interval_set(spans))) << "none twice";
}

TEST(DeviceTimeline, TheDeviceHasALaneAndTheThreadOnlyHandsOver) {
  const Timeline timeline = make_timeline(test::device_capture().capture);
  ASSERT_EQ(timeline.lanes.size(), 2u);
  EXPECT_EQ(timeline.lanes[1].kind, Lane::Kind::kDevice);
  EXPECT_EQ(timeline.lanes[1].name, "GPU");
  const auto [first, last] = timeline.lane_range(1);
  EXPECT_EQ(text_of({timeline.slices.begin() + first, timeline.slices.begin() + last}),
            "Add 2000-2500, MatMul.o_proj 2500-4000, Add 4000-4500, Add 6000-7000+, Memcpy 7000-7200");
  for (const Slice& s : timeline.slices) {
    const bool is_handed_over = s.lane == 0 && (s.zone == Zone::kAdd || s.zone == Zone::kOProj);
    EXPECT_EQ(s.is_handed_over, is_handed_over) << zone_info(s.zone).name;
    EXPECT_EQ(kind_of(s) == ZoneKind::kCompute, s.lane == 1 || s.zone == Zone::kSample);
  }
}

TEST(DeviceTimeline, StepsAddUpToTheNanosecond) {
  const Timeline timeline = make_timeline(test::device_capture().capture);
  int64_t sum_ns = 0, device_ns = 0, waiting_ns = 0;
  for_each_step_slice(timeline, [&](std::size_t step, const Slice& s) {
    EXPECT_EQ(step, 0u);
    sum_ns += s.self_ns;
    if (s.lane == 1) device_ns += s.self_ns;
    if (s.zone == Zone::kWaitDevice) waiting_ns += s.self_ns;
  });
  EXPECT_EQ(sum_ns, 8000);
  EXPECT_EQ(device_ns, 3700);
  EXPECT_EQ(waiting_ns, 900 + 800) << "while the device has nothing to do: before 6000 and behind 7200";
}

}  // namespace
}  // namespace ferry

#include "profiler/archive/moment.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <ctime>

namespace ferry {
namespace {

class MomentTest : public testing::Test {
 protected:
  MomentTest() { set_zone("UTC"); }
  ~MomentTest() override { set_zone("UTC"); }
  static void set_zone(const char* zone) {
    ::setenv("TZ", zone, 1);
    ::tzset();
  }
};

constexpr int64_t kNow = 1'795'816'800;  // 2026-11-27 22:00:00 UTC
constexpr int64_t kMidnight = kNow - 22 * 3600;

TEST_F(MomentTest, ATimeOfDayIsItsLastOne) {
  EXPECT_EQ(moment_text(kNow * 1'000'000'000 + 123'000'000), "2026-11-27 22:00:00.123");
  EXPECT_EQ(parse_moment("03:12", kNow), kMidnight + 3 * 3600 + 12 * 60);
  EXPECT_EQ(parse_moment("03:12:05", kNow), kMidnight + 3 * 3600 + 12 * 60 + 5);
  EXPECT_EQ(parse_moment("22:00", kNow), kNow);
  EXPECT_EQ(parse_moment("23:00", kNow), kMidnight - 3600) << "today it is still to come";
  EXPECT_EQ(parse_moment("2026-11-26T03:12", kNow), kMidnight - 86400 + 3 * 3600 + 12 * 60);
  EXPECT_EQ(parse_moment("2026-11-28T03:12:05", kNow), kMidnight + 86400 + 3 * 3600 + 12 * 60 + 5);
}

TEST_F(MomentTest, TimesAreThoseOfTheLocalClock) {
  set_zone("IST-5:30");  // 03:30 on the next day
  EXPECT_EQ(moment_text(kNow * 1'000'000'000), "2026-11-28 03:30:00.000");
  EXPECT_EQ(parse_moment("03:12", kNow), kNow - 18 * 60);
  EXPECT_EQ(parse_moment("03:31", kNow), kNow - 86400 + 60) << "today it is still to come";
  EXPECT_EQ(parse_moment("2026-11-28T03:12", kNow), kNow - 18 * 60);
}

TEST_F(MomentTest, DaysOnWhichClocksAreChangedAreNotSkipped) {
  set_zone("CET-1CEST,M3.5.0,M10.5.0/3");
  const int64_t after_short = 1'774'823'400;  // 2026-03-30 00:30 CEST; the day before had 23 hours
  EXPECT_EQ(moment_text(after_short * 1'000'000'000), "2026-03-30 00:30:00.000");
  EXPECT_EQ(parse_moment("23:00", after_short), after_short - 5400) << "of the day before, not of that before it";
  const int64_t after_long = 1'792'971'000;  // 2026-10-26 00:30 CET; the day before had 25
  EXPECT_EQ(moment_text(after_long * 1'000'000'000), "2026-10-26 00:30:00.000");
  EXPECT_EQ(parse_moment("00:45", after_long), after_long - 25 * 3600 + 900);
}

TEST_F(MomentTest, AnythingElseIsNone) {
  for (const char* text :
       {"", "3:12", "03:12:", "24:00", "03:60", "03:12:60", "03-12", "-3:12", "+3:12", "03:12x", "2026-11-27", "2026-11-27T",
        "2026-13-01T00:00", "2026-02-30T00:00", "2026-1-27T03:12", "1900-01-01T00:00", "T03:12"})
    EXPECT_EQ(parse_moment(text, kNow), std::nullopt) << text;
}

TEST_F(MomentTest, YearsEndWhereNanosecondsStillFit) {
  const std::optional<int64_t> last = parse_moment("2200-12-31T23:59:59", kNow);
  ASSERT_TRUE(last);
  EXPECT_EQ(moment_text(*last * 1'000'000'000), "2200-12-31 23:59:59.000");
  for (const char* text : {"2201-01-01T00:00", "2400-03-30T12:00", "9999-12-31T23:59:59", "1969-12-31T23:59"})
    EXPECT_EQ(parse_moment(text, kNow), std::nullopt) << text;
}

TEST_F(MomentTest, SpansHaveUnits) {
  EXPECT_EQ(parse_span("90s"), 90);
  EXPECT_EQ(parse_span("15m"), 900);
  EXPECT_EQ(parse_span("1h"), 3600);
  EXPECT_EQ(parse_span("2d"), 2 * 86400);
  for (const char* text : {"", "h", "1", "0h", "-1h", "1w", "1.5h", "999999999h", "367d", "1 h"})
    EXPECT_EQ(parse_span(text), std::nullopt) << text;
}

}  // namespace
}  // namespace ferry

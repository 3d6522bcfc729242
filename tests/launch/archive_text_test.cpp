#include "launch/archive_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ferry {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int64_t kNow = int64_t{1'800'000'000} * 1'000'000'000;

/// Steps of which one is long, three are slow, and all others samples.
ArchiveAnswer answer_of(int64_t num_steps) {
  const ArchiveQuery query{.from_ns = kNow, .to_ns = kNow + num_steps};
  std::vector<SegmentEntry> steps;
  for (int64_t i = 0; i < num_steps; ++i) {
    const KeptFor why = i == 0 ? KeptFor::kLong : i <= 3 ? KeptFor::kSlow : KeptFor::kSample;
    steps.push_back({.file = std::to_string(i),
                     .run = "run-1-0.json",
                     .time_ns = kNow + i,
                     .why = why,
                     .facts = {.step = i, .seconds = i == 2 ? 0.5 : 0.001, .num_rows = i}});
  }
  return answer(steps, query);
}

TEST(ArchiveText, CountsStepsByWhyTheyAreInTheList) {
  const ArchiveAnswer found = answer_of(40);
  const std::string line = archive_headline({.from_ns = kNow}, found);
  EXPECT_THAT(line,
              HasSubstr(": 40 steps were kept (36 sample, 3 slow, 1 long); the slowest, decode with 2 rows, took 500.000 ms"));
  const Table table = make_kept_view(found);
  ASSERT_EQ(table.rows.size(), 40U);
  EXPECT_THAT(table.note, Not(HasSubstr(" of the ")));
  const auto count = [&](const std::string& why) {
    return std::ranges::count(table.rows, Table::Cell(why), [](const std::vector<Table::Cell>& row) { return row[1]; });
  };
  EXPECT_EQ(count("sample"), 36);
  EXPECT_EQ(count("slow"), 3);
  EXPECT_EQ(count("long"), 1);
}

TEST(ArchiveText, SaysHowManyOfThemAreListed) {
  const Table table = make_kept_view(answer_of(100));
  EXPECT_EQ(table.rows.size(), kMaxChosen);
  EXPECT_THAT(table.note, HasSubstr(": 64 (63 sample, 1 long) of the 100"));
}

}  // namespace
}  // namespace ferry

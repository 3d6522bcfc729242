#include "profiler/archive/step_history.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "runtime/base/error.h"
#include "tests/support/temp_folder.h"

namespace ferry {
namespace {

constexpr int64_t kToday = int64_t{20'000} * StepHistory::kDay + 5 * StepHistory::kHour;
constexpr StepKind kDecodeOne{.phase = Phase::kDecode, .rows = 1, .keys = 9};

TEST(StepHistory, IsTheSameAfterItsFiles) {
  const test::TempFolder folder;
  StepHistory history;
  for (int i = 0; i < 1000; ++i) history.add(kDecodeOne, 1e-3 * (i + 1), kToday - i % 3 * StepHistory::kHour);
  history.add({.phase = Phase::kPrefill, .rows = 40}, 0.5, kToday);
  write_history(folder.path(), history, kToday);
  const StepHistory read = read_history(folder.path());
  EXPECT_EQ(read.day_text(kToday), history.day_text(kToday));
  EXPECT_EQ(read.phase(Phase::kDecode, kToday - 3 * StepHistory::kHour, kToday + 1).num_steps(), 1000);
  EXPECT_NEAR(read.phase(Phase::kDecode, kToday, kToday + 1).num_steps(), 334, 1) << "of one hour alone";
  EXPECT_EQ(read.phase(Phase::kPrefill, kToday, kToday + 1).longest(), 0.5);
}

TEST(StepHistory, StepsCountInTheHourInWhichTheyWere) {
  const test::TempFolder folder;
  StepHistory history;
  for (int i = 0; i < 100; ++i) {
    history.add(kDecodeOne, 1e-3, kToday - 1);  // the last second of an hour
    history.add(kDecodeOne, 1.0, kToday);       // the first of the next one
  }
  write_history(folder.path(), history, kToday);
  for (const StepHistory& told : {history, read_history(folder.path())}) {
    const auto of = [&](int64_t from_s, int64_t to_s) { return told.phase(Phase::kDecode, from_s, to_s); };
    EXPECT_EQ(of(kToday - StepHistory::kHour, kToday).num_steps(), 100) << "the end of a time is not in it";
    EXPECT_NEAR(of(kToday - StepHistory::kHour, kToday).quantile(0.99), 1e-3, 1e-5);
    EXPECT_EQ(of(kToday, kToday + 1).num_steps(), 100);
    EXPECT_NEAR(of(kToday, kToday + 1).quantile(0.01), 1.0, 1e-2);
    EXPECT_EQ(of(kToday - 1, kToday + 1).num_steps(), 200) << "a time that touches two hours has both";
    EXPECT_EQ(of(kToday + StepHistory::kHour, kToday + 2 * StepHistory::kHour).num_steps(), 0);
  }
}

TEST(StepHistory, KeepsThirtyDaysInMemoryAndOnDisk) {
  const test::TempFolder folder;
  StepHistory history;
  for (int64_t day = 0; day < 40; ++day) {
    const int64_t now_s = kToday + day * StepHistory::kDay;
    history.add(kDecodeOne, 1e-3, now_s);
    history.forget(now_s);
    write_history(folder.path(), history, now_s);
  }
  const auto num_files =
      std::distance(std::filesystem::directory_iterator(folder.path()), std::filesystem::directory_iterator());
  EXPECT_EQ(num_files, StepHistory::kMaxDays + 1);
  EXPECT_EQ(history.phase(Phase::kDecode, 0, kToday + 41 * StepHistory::kDay).num_steps(), StepHistory::kMaxDays + 1);
}

TEST(StepHistory, MoreKindsThanItKeepsCountTogether) {
  StepHistory history;
  for (int rows = 0; rows < 256; ++rows) {
    for (int keys = 0; keys < 4; ++keys)
      history.add({.phase = Phase::kMixed, .rows = static_cast<uint8_t>(rows), .keys = static_cast<uint8_t>(keys)}, 1e-3,
                  kToday);
  }
  const StepHistory::Kinds kinds = history.kinds(kToday, kToday + 1);
  EXPECT_EQ(kinds.size(), StepHistory::kMaxKinds + 1);
  EXPECT_EQ(kinds.at(StepHistory::other_kind(Phase::kMixed)).num_steps(), 1024 - static_cast<int64_t>(StepHistory::kMaxKinds));
}

TEST(StepHistory, WhatWasLeftOutIsCountedByReasonAndHour) {
  const test::TempFolder folder;
  StepHistory history;
  history.add(kDecodeOne, 1e-3, kToday);
  history.add_left_out(KeptFor::kSample, 7, kToday);
  history.add_left_out(KeptFor::kSample, 3, kToday);
  history.add_left_out(KeptFor::kStopped, 2, kToday);
  history.add_left_out(KeptFor::kLong, 0, kToday);
  write_history(folder.path(), history, kToday);
  StepHistory read = read_history(folder.path());
  EXPECT_EQ(read.left_out(kToday, kToday + 1), (CountsByReason{10, 0, 0, 2, 0}));
  EXPECT_EQ(read.left_out(kToday - 3 * StepHistory::kHour, kToday - 2 * StepHistory::kHour), CountsByReason{});
  EXPECT_EQ(counts_text(read.left_out(kToday, kToday + 1)), "10 sample, 2 stopped");
  read.forget(kToday + 31 * StepHistory::kDay);
  EXPECT_EQ(read.left_out(0, kToday + 1), CountsByReason{});
}

TEST(StepHistory, CountsOfWhatWasLeftOutAreBounded) {
  StepHistory history;
  const auto day = [](const std::string& left_out) {
    return R"({"format":1,"day":20000,"hours":[],"left_out":[)" + left_out + "]}";
  };
  for (const char* bad : {R"({"hour":480000,"counts":[1,2,3,4]})", R"({"hour":480000,"counts":[1,2,3,4,-1]})",
                          R"({"hour":480024,"counts":[1,2,3,4,5]})", R"({"hour":480000,"counts":[1,2,3,4,9e18]})",
                          R"({"hour":480000,"counts":[1,0,0,0,0]},{"hour":480000,"counts":[1,0,0,0,0]})", "7"})
    EXPECT_THROW(history.add_day(day(bad), "bad"), Error) << bad;
  EXPECT_EQ(history.left_out(0, int64_t{1} << 40), CountsByReason{});
}

TEST(StepHistory, ADamagedDayIsRefusedAndNothingOfItIsTaken) {
  const std::string kind = R"({"phase":1,"rows":1,"keys":1,"longest_s":1,"counts":[5,3]})";
  const auto day = [](const std::string& kinds, const std::string& hour = "480000") {
    return R"({"format":1,"day":20000,"hours":[{"hour":)" + hour + R"(,"kinds":[)" + kinds + "]}]}";
  };
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = kind;
    return day(kind + "," + text.replace(text.find(from), from.size(), to));
  };
  StepHistory history;
  history.add_day(day(kind), "good");
  const std::string before = history.day_text(int64_t{20'000} * StepHistory::kDay);
  const std::vector<std::string> bad = {"",
                                        "{",
                                        "[]",
                                        R"({"format":2,"day":20000,"hours":[]})",
                                        R"({"format":1,"day":-1,"hours":[]})",
                                        day(kind, "480024"),
                                        day(kind, "479999"),
                                        day(kind, "1e99"),
                                        with("[5,3]", "[5]"),
                                        with("[5,3]", "[5,0]"),
                                        with("[5,3]", "[5,3,5,3]"),
                                        with("[5,3]", "[5,9223372036854775807]"),
                                        with("[5,3]", "[1041,3]"),
                                        with("[5,3]", "{}"),
                                        with("\"phase\":1", "\"phase\":3"),
                                        with("\"rows\":1", "\"rows\":256"),
                                        with("\"longest_s\":1", "\"longest_s\":-1"),
                                        with("\"longest_s\":1", "\"longest_s\":\"x\"")};
  for (const std::string& text : bad) {
    EXPECT_THROW(history.add_day(text, "bad"), Error) << text;
    EXPECT_EQ(history.day_text(int64_t{20'000} * StepHistory::kDay), before) << text;
  }
}

TEST(StepHistory, AFolderWithADamagedDayGivesTheOthers) {
  const test::TempFolder folder;
  StepHistory history;
  history.add(kDecodeOne, 1e-3, kToday);
  write_history(folder.path(), history, kToday);
  std::ofstream(folder.path() / "steps-20001.json") << "{\"format\":1";
  std::ofstream(folder.path() / "steps-x.json") << "nothing of ours";
  EXPECT_EQ(read_history(folder.path()).phase(Phase::kDecode, kToday, kToday + 1).num_steps(), 1);
}

}  // namespace
}  // namespace ferry

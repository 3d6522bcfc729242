#include "runtime/trace/archive_keeper.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "profiler/archive/step_history.h"
#include "tests/profiler/archive/kept_steps.h"
#include "tests/support/eventually.h"
#include "tests/support/manual_clock.h"
#include "tests/support/temp_folder.h"

namespace ferry {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kRoom = int64_t{64} << 20;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

class ArchiveKeeperTest : public testing::Test {
 protected:
  fs::path path() const { return folder_.path() / "archive"; }

  /// Has the keeper's thread look at what it was given. Then waits for what it makes of it.
  template <class Condition>
  void look_until(const ArchiveKeeper& keeper, Condition&& condition) {
    clock_.advance_to_next_wake();
    eventually([&] { return condition(keeper.status()); }, "the keeper to write what it was given",
               [&] {
                 return std::to_string(keeper.status().num_kept) + " kept, " + std::to_string(keeper.status().num_left_out) +
                        " left out";
               });
  }

  ManualClock clock_;

 private:
  test::TempFolder folder_;
};

TEST_F(ArchiveKeeperTest, WhatWasHandedOverIsThereAtTheEnd) {
  {
    ArchiveKeeper keeper(path(), kRoom, clock_);
    for (int step = 0; step < 3; ++step) keeper.add_kept_step(test::make_kept_step(step, now_ns()));
    for (int step = 0; step < 100; ++step) keeper.add_step(test::make_kept_step(step, now_ns()).facts);
  }
  EXPECT_EQ(read_archive(path()).size(), 3U);
  const int64_t now_s = now_ns() / 1'000'000'000;
  const StepHistory history = read_history(path());
  EXPECT_EQ(history.phase(Phase::kDecode, now_s - 3600, now_s + 1).num_steps(), 100);
  const ArchiveKeeper next(path(), kRoom, clock_);
  EXPECT_EQ(next.status().num_kept, 3) << "it goes on with what is there";
}

TEST_F(ArchiveKeeperTest, TellsWhatItKeeps) {
  ArchiveKeeper keeper(path(), kRoom, clock_);
  keeper.add_kept_step(test::make_kept_step(1, now_ns()));
  look_until(keeper, [](const ArchiveStatus& status) { return status.num_kept == 1; });
  EXPECT_EQ(keeper.status().num_bytes, read_archive(path()).front().bytes);
  EXPECT_EQ(keeper.status().num_left_out, 0);
}

TEST_F(ArchiveKeeperTest, StepsThatComeFasterThanTheyAreWrittenAreCounted) {
  constexpr int64_t kSteps = 100, kPlaces = 64;  // between two looks, of samples
  ArchiveKeeper keeper(path(), kRoom, clock_);
  clock_.wait_for_sleepers(1);
  const auto add = [&] {
    for (int64_t step = 0; step < kSteps; ++step) keeper.add_kept_step(test::make_kept_step(step, now_ns() + step));
  };
  add();
  EXPECT_EQ(keeper.status().num_left_out, kSteps - kPlaces);
  look_until(keeper, [](const ArchiveStatus& status) { return status.num_kept == kPlaces; });
  add();
  EXPECT_EQ(keeper.status().num_left_out, 2 * (kSteps - kPlaces)) << "a look makes room";
  look_until(keeper, [](const ArchiveStatus& status) { return status.num_kept == 2 * kPlaces; });
}

TEST_F(ArchiveKeeperTest, AFloodOfSamplesCostsNothingThatStandsOutAndIsToldOf) {
  constexpr int64_t kSamples = 100, kPlaces = 64;
  constexpr int64_t kOthers = 16;  // of each other reason, all of which have a place
  std::vector<KeptStep> kept;
  for (int64_t step = 0; step < kSamples; ++step) kept.push_back(test::make_kept_step(step, now_ns() + step));
  for (int64_t step = 0; step < kOthers; ++step) {
    for (const KeptFor why : {KeptFor::kSlow, KeptFor::kLong, KeptFor::kStopped, KeptFor::kWorkerChange})
      kept.push_back(test::make_kept_step(step, now_ns() + step, why));
  }
  testing::internal::CaptureStderr();
  int64_t num_left_out = 0;
  {
    ArchiveKeeper keeper(path(), kRoom, clock_);
    clock_.wait_for_sleepers(1);  // so that it looks once, at the end
    for (KeptStep& step : kept) keeper.add_kept_step(std::move(step));
    num_left_out = keeper.status().num_left_out;
  }
  const std::string said = testing::internal::GetCapturedStderr();
  std::array<int64_t, kNumKeptFor> num_kept{};
  for (const SegmentEntry& entry : read_archive(path())) ++num_kept[static_cast<std::size_t>(entry.why)];
  for (std::size_t why = 1; why < num_kept.size(); ++why) EXPECT_EQ(num_kept[why], kOthers) << kept_for_name(KeptFor(why));
  EXPECT_EQ(num_left_out, kSamples - kPlaces);
  const int64_t now_s = now_ns() / 1'000'000'000;
  EXPECT_EQ(read_history(path()).left_out(now_s - 3600, now_s + 1), (CountsByReason{num_left_out, 0, 0, 0, 0}));
  EXPECT_EQ(said.find("ferry: warning: steps to be kept come too fast"), said.rfind("ferry: warning")) << said;
  EXPECT_NE(said.find(" sample were left out"), std::string::npos) << said;
}

TEST_F(ArchiveKeeperTest, TellsOfStepsThatWereNotCollected) {
  testing::internal::CaptureStderr();
  {
    ArchiveKeeper keeper(path(), kRoom, clock_);
    keeper.add_left_out({4, 0, 1, 0, 0});
    EXPECT_EQ(keeper.status().num_left_out, 5);
  }
  EXPECT_NE(testing::internal::GetCapturedStderr().find("4 sample, 1 long were left out"), std::string::npos);
  const int64_t now_s = now_ns() / 1'000'000'000;
  EXPECT_EQ(read_history(path()).left_out(now_s - 3600, now_s + 1), (CountsByReason{4, 0, 1, 0, 0}));
}

TEST_F(ArchiveKeeperTest, AFolderThatTakesNothingCostsItsStepsAlone) {
  ArchiveKeeper keeper(path(), kRoom, clock_);
  fs::remove_all(path());
  keeper.add_kept_step(test::make_kept_step(1, now_ns()));
  keeper.add_kept_step(test::make_kept_step(2, now_ns()));
  look_until(keeper, [](const ArchiveStatus& status) { return status.num_left_out == 2; });
  EXPECT_EQ(keeper.status().num_kept, 0);
  fs::create_directories(path());
  keeper.add_kept_step(test::make_kept_step(3, now_ns()));
  look_until(keeper, [](const ArchiveStatus& status) { return status.num_kept == 1; });
}

}  // namespace
}  // namespace ferry

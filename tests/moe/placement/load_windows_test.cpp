#include "moe/placement/load_windows.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"

namespace ferry {
namespace {

/// Counts since the start, as the run has them.
class LoadWindowsTest : public ::testing::Test {
 protected:
  /// A step that gives the experts of both layers these rows.
  void step(const std::vector<int64_t>& first, const std::vector<int64_t>& second) {
    for (std::size_t e = 0; e < 3; ++e) {
      totals_[0][e] += first[e];
      totals_[1][e] += second[e];
    }
    windows_.add_layer(0, totals_[0]);
    windows_.add_layer(1, totals_[1]);
    windows_.end_step();
  }

  LoadWindows windows_{{.num_layers = 2, .num_experts = 3, .steps_per_window = 2, .num_windows = 2}};
  std::vector<std::vector<int64_t>> totals_{{0, 0, 0}, {0, 0, 0}};
};

TEST_F(LoadWindowsTest, CountsRowsAndStepsThatTouched) {
  step({4, 0, 0}, {0, 1, 1});
  step({1, 1, 0}, {0, 0, 0});
  step({0, 0, 0}, {0, 0, 0});  // nothing ran
  const ExpertLoads loads = windows_.loads();
  EXPECT_EQ(loads.num_steps, 2);
  EXPECT_EQ(loads.rows, (std::vector<double>{5, 1, 0, 0, 1, 1}));
  EXPECT_EQ(loads.touched, (std::vector<double>{2, 1, 0, 0, 1, 1}));
  // (2 * 10 + 5 * 3) / 2 steps, and so on.
  EXPECT_EQ(expected_cost(loads, 0, {.fixed = 10, .per_row = 3}), (std::vector<double>{17.5, 6.5, 0}));
  EXPECT_EQ(expected_cost(loads, 1, {.fixed = 10, .per_row = 3}), (std::vector<double>{0, 6.5, 6.5}));
}

TEST_F(LoadWindowsTest, OldWindowsCountLessAndAreForgotten) {
  step({8, 0, 0}, {0, 0, 0});
  step({8, 0, 0}, {0, 0, 0});
  step({0, 2, 0}, {0, 0, 0});
  ExpertLoads loads = windows_.loads(1);
  EXPECT_EQ(loads.num_steps, 2);  // one, and two halves
  EXPECT_EQ(loads.rows, (std::vector<double>{8, 2, 0, 0, 0, 0}));
  EXPECT_EQ(loads.touched, (std::vector<double>{1, 1, 0, 0, 0, 0}));
  step({0, 2, 0}, {0, 0, 0});  // the second window is full, the first one is overwritten
  loads = windows_.loads();
  EXPECT_EQ(loads.num_steps, 2);
  EXPECT_EQ(loads.rows, (std::vector<double>{0, 4, 0, 0, 0, 0}));
  EXPECT_EQ(loads.touched, (std::vector<double>{0, 2, 0, 0, 0, 0}));
}

TEST_F(LoadWindowsTest, TheRecordHasTheWindowsFromTheOldestOn) {
  EXPECT_EQ(windows_.record().num_windows, 0);
  step({1, 0, 0}, {0, 0, 3});
  step({1, 0, 0}, {0, 0, 3});
  EXPECT_EQ(windows_.record().num_windows, 1);  // the next one is empty yet
  step({0, 5, 0}, {0, 0, int64_t{1} << 40});
  const LoadRecord record = windows_.record();
  ASSERT_EQ(record.num_windows, 2);
  EXPECT_EQ(record.rows, (std::vector<int32_t>{2, 0, 0, 0, 0, 6, 0, 5, 0, 0, 0, INT32_MAX}));
  EXPECT_EQ(record.layer(1, 0)[1], 5);
}

TEST_F(LoadWindowsTest, WithoutStepsAllExpertsAreAlike) {
  EXPECT_EQ(expected_cost(windows_.loads(), 1, {.fixed = 7, .per_row = 1}), (std::vector<double>{7, 7, 7}));
}

TEST(LoadWindows, RefusesSizesThatMakeNoSense) {
  EXPECT_THROW(LoadWindows({.num_layers = 0}), Error);
  EXPECT_THROW(LoadWindows({.steps_per_window = 0}), Error);
  EXPECT_THROW(LoadWindows({.num_layers = 1 << 20, .num_experts = 1 << 20, .num_windows = 1 << 20}), Error);
}

}  // namespace
}  // namespace ferry

#include "runtime/base/check.h"

#include <gtest/gtest.h>

#include <thread>

namespace ferry {
namespace {

TEST(CheckDeathTest, TellsWhereAndBothValues) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto break_a_check = [](int rows, int expected) {
    check_context() = {.rank = 2, .step = 17, .layer = 5};
    FERRY_CHECK_EQ(rows, expected) << "rows of expert 9";
  };
  EXPECT_DEATH(break_a_check(3, 4), "rank 2 step 17 layer 5.*3 vs 4.*rows of expert 9");
}

TEST(Check, PassesSilentlyAndEvaluatesOnce) {
  int calls = 0;
  FERRY_CHECK_GE(++calls, 1) << "not shown";
  EXPECT_EQ(calls, 1);
}

TEST(Check, ContextBelongsToItsThread) {
  check_context().rank = 7;
  std::thread([] { EXPECT_EQ(check_context().rank, -1); }).join();
  EXPECT_EQ(check_context().rank, 7);
}

}  // namespace
}  // namespace ferry

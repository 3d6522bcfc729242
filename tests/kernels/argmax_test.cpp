#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "tests/support/op_test.h"

namespace ferry::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int32_t kUntouched = -77;

std::vector<int32_t> all_rows(int64_t count) {
  std::vector<int32_t> rows(static_cast<std::size_t>(count));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

class ArgmaxTest : public OpTest {
 protected:
  std::vector<int32_t> argmax(const OpTable& ops, ConstMatrixView x, std::span<const int32_t> rows) {
    std::vector<int32_t> ids(static_cast<std::size_t>(x.rows), kUntouched);
    ops.argmax(stream_, {.x = x, .rows = rows, .ids = ids.data()});
    return ids;
  }
  int32_t argmax_of(const std::vector<float>& values) {
    TestMatrix x(dtype(), 1, static_cast<int64_t>(values.size()));
    for (std::size_t i = 0; i < values.size(); ++i) x.set(0, static_cast<int64_t>(i), values[i]);
    return argmax(table(), x.view(), all_rows(1))[0];
  }
};
class ArgmaxDeathTest : public ArgmaxTest {};
INSTANTIATE_TEST_SUITE_P(Tables, ArgmaxTest, testing::ValuesIn(op_cases()), op_case_name);
INSTANTIATE_TEST_SUITE_P(Tables, ArgmaxDeathTest, testing::ValuesIn(op_cases()), op_case_name);

TEST_P(ArgmaxTest, LikeRef) {
  for (const int64_t rows : {1, 3, 8, 9, 130}) {
    for (const int64_t cols : {1, 2, 15, 64, 999, 2048, 2049, 4096, 8193, 20011}) {
      if (rows * cols > 1000000) continue;
      const TestMatrix x = TestMatrix(dtype(), rows, cols, 3).fill_random(static_cast<uint32_t>(rows * cols));
      EXPECT_EQ(argmax(table(), x.view(), all_rows(rows)), argmax(ref::kOpTable, x.view(), all_rows(rows)))
          << rows << " x " << cols;
    }
  }
}

TEST_P(ArgmaxTest, FindsTheLargestWhereverItIs) {
  const int64_t cols = 9001;
  for (const int64_t rows : {1, 9}) {  // devices cut few rows into more parts
    for (const int64_t padding : {0, 7}) {
      for (const int64_t place : {0, 1, 7, 8, 63, 2047, 2048, 4095, 4096, 8191, 8192, 8999, 9000}) {
        TestMatrix x = TestMatrix(dtype(), rows, cols, padding).fill(-3.0f);
        x.set(rows - 1, place, -2.0f);
        EXPECT_EQ(argmax(table(), x.view(), all_rows(rows)).back(), place) << rows << " rows";
      }
    }
  }
}

// In bf16 nearly every row of a real vocabulary has ties.
TEST_P(ArgmaxTest, TheLowestOfEqualOnes) {
  const int64_t cols = 12345;
  std::mt19937 engine(7);
  for (const int64_t rows : {2, 20}) {
    TestMatrix x(dtype(), rows, cols);
    std::vector<int32_t> expected(static_cast<std::size_t>(rows), -1);
    for (int64_t r = 0; r < rows; ++r) {
      const uint32_t num_values = r % 2 == 0 ? 3 : 3000;  // the largest comes up thousands of times, or some four times
      for (int64_t c = 0; c < cols; ++c) {
        const uint32_t value = engine() % num_values;
        x.set(r, c, value + 1 == num_values ? 0.5f : -1.0f - static_cast<float>(value % 100));
        if (value + 1 == num_values && expected[static_cast<std::size_t>(r)] < 0)
          expected[static_cast<std::size_t>(r)] = static_cast<int32_t>(c);
      }
    }
    EXPECT_EQ(argmax(table(), x.view(), all_rows(rows)), expected);
  }
  EXPECT_EQ(argmax_of({-1.0f, -0.0f, 0.0f}), 1) << "both zeros are equal";
  EXPECT_EQ(argmax_of({-1.0f, 0.0f, -0.0f}), 1);
}

TEST_P(ArgmaxTest, NanIsNeverTheLargestNorIsMinusInfinity) {
  EXPECT_EQ(argmax_of({kNan, -5.0f, kNan}), 1);
  EXPECT_EQ(argmax_of({-kNan, -kInfinity, -1e30f, kNan}), 2);
  EXPECT_EQ(argmax_of({1.0f, kInfinity, kNan, kInfinity}), 1);
  EXPECT_EQ(argmax_of({kNan}), kNoToken);
  EXPECT_EQ(argmax_of({-kInfinity, kNan, -kInfinity}), kNoToken);
  EXPECT_EQ(argmax_of(std::vector<float>(5000, kNan)), kNoToken);
  std::vector<float> late(9001, kNan);
  late[8888] = -1e38f;
  EXPECT_EQ(argmax_of(late), 8888);
}

// The least numbers there are: a device must not flush them to zeros.
TEST_P(ArgmaxTest, DenormalsAreNoZeros) {
  const float least = is_f32() ? std::numeric_limits<float>::denorm_min() : std::ldexp(1.0f, -133);
  EXPECT_EQ(argmax_of({0.0f, least, 2 * least, least}), 2);
  EXPECT_EQ(argmax_of({-2 * least, -least, -3 * least}), 1);
}

TEST_P(ArgmaxTest, LooksAtTheRowsThatAreNamedAndAtNoPadding) {
  const int64_t cols = 2500, num_chosen = 2477;
  TestMatrix x = TestMatrix(dtype(), 12, cols, 1).fill_random(3);
  for (int64_t r = 0; r < 12; ++r) x.set(r, num_chosen, 100.0f);
  for (int64_t r = 0; r < 12; ++r) x.set(r, 2400 - r, 50.0f);
  const std::vector<int32_t> rows = {11, 0, 5};
  const std::vector<int32_t> ids = argmax(table(), x.view().cols_from(0, num_chosen), rows);
  for (int32_t r = 0; r < 12; ++r) {
    const bool is_named = std::ranges::count(rows, r) > 0;
    EXPECT_EQ(ids[static_cast<std::size_t>(r)], is_named ? 2400 - r : kUntouched) << "row " << r;
  }
  EXPECT_EQ(argmax(table(), x.view(), {}), std::vector<int32_t>(12, kUntouched));
}

TEST_P(ArgmaxDeathTest, RowIndicesAreChecked) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const TestMatrix x = TestMatrix(dtype(), 2, 8).fill(1.0f);
  for (const int32_t bad : {2, -1}) EXPECT_DEATH(argmax(table(), x.view(), {&bad, 1}), "row index " + std::to_string(bad));
}

}  // namespace
}  // namespace ferry::test

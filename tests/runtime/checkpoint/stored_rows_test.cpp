#include "runtime/checkpoint/stored_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/tensor.h"
#include "tests/support/expect_error.h"

namespace ferry {
namespace {

/// A tensor over bytes of its own.
struct Made {
  template <class T>
  Made(StoredType type, std::vector<int64_t> dims, const std::vector<T>& values) : bytes(values.size() * sizeof(T)) {
    std::memcpy(bytes.data(), values.data(), bytes.size());
    info.dtype = type;
    info.shape = std::move(dims);
    info.data = bytes.data();
    info.bytes = static_cast<int64_t>(bytes.size());
  }
  std::vector<std::byte> bytes;
  TensorInfo info;
};

std::vector<float> row_of(const StoredRows& stored, int64_t row) {
  std::vector<float> values(static_cast<std::size_t>(stored.cols));
  read_row(stored, row, values);
  return values;
}

TEST(StoredRows, CodesOf8BitsAreE4m3) {
  std::vector<uint8_t> codes(256);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i);
  const Made tensor(StoredType::kF8E4M3, {1, 256}, codes), scales(StoredType::kF32, {1, 2}, std::vector<float>{1, 1});
  const StoredRows stored{.tensor = &tensor.info,
                          .rows = 1,
                          .cols = 256,
                          .format = {.kind = SourceFormat::Kind::kFp8Block},
                          .matrix_rows = 1,
                          .matrix_cols = 256,
                          .scales = &scales.info};
  const std::vector<float> values = row_of(stored, 0);
  EXPECT_EQ(values[0x38], 1.0F);
  EXPECT_EQ(values[0x7E], 448.0F);       // the largest
  EXPECT_EQ(values[0x08], 0x1p-6F);      // the least that is normal
  EXPECT_EQ(values[0x01], 0x1p-9F);      // the least of all
  EXPECT_EQ(values[0x07], 7 * 0x1p-9F);  // the largest below normal
  EXPECT_EQ(values[0x45], 2 * (1 + 5 / 8.0F));
  EXPECT_TRUE(std::isnan(values[0x7F]) && std::isnan(values[0xFF]));
  for (std::size_t i = 0; i < 127; ++i) {
    EXPECT_LT(values[i], i + 1 < 127 ? values[i + 1] : INFINITY) << i;
    EXPECT_EQ(values[i + 128], -values[i]) << i;
  }
}

/// Blocks of 2 rows and 3 columns over a stack of two matrices of 3 rows and 4 columns: the last of each are smaller, and the
/// second matrix begins with blocks of its own.
TEST(StoredRows, EdgeBlocksAndStacksHaveScalesOfTheirOwn) {
  const Made tensor(StoredType::kF8E4M3, {2, 3, 4}, std::vector<uint8_t>(24, 0x38));  // ones
  std::vector<bfloat16> factors;
  for (int i = 1; i <= 8; ++i) factors.push_back(from_float<bfloat16>(static_cast<float>(i)));
  const Made scales(StoredType::kBF16, {2, 2, 2}, factors);
  const StoredRows stored{.tensor = &tensor.info,
                          .rows = 6,
                          .cols = 4,
                          .format = {.kind = SourceFormat::Kind::kFp8Block, .block_rows = 2, .block_cols = 3},
                          .matrix_rows = 3,
                          .matrix_cols = 4,
                          .scales = &scales.info};
  const float expected[6][2] = {{1, 2}, {1, 2}, {3, 4}, {5, 6}, {5, 6}, {7, 8}};
  for (int64_t r = 0; r < 6; ++r) {
    const float left = expected[r][0], right = expected[r][1];
    EXPECT_EQ(row_of(stored, r), (std::vector<float>{left, left, left, right})) << r;
  }
  StoredRows second = stored;  // a piece of the stack
  second.first_row = 3;
  second.rows = 3;
  EXPECT_EQ(row_of(second, 2), row_of(stored, 5));
  StoredRows columns = second;  // the last two: the end of a block, and another
  columns.first_col = 2;
  columns.cols = 2;
  EXPECT_EQ(row_of(columns, 2), (std::vector<float>{7, 8}));
}

TEST(StoredRows, PlainColumnsLieInTheirRows) {
  const Made tensor(StoredType::kF32, {2, 4}, std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7});
  const StoredRows stored{
      .tensor = &tensor.info, .first_row = 1, .rows = 1, .cols = 2, .matrix_rows = 2, .matrix_cols = 4, .first_col = 1};
  EXPECT_EQ(row_of(stored, 0), (std::vector<float>{5, 6}));
  EXPECT_EQ(stored.stored_bytes(), 8);
  EXPECT_EQ(stored.row_bytes(), 16);
}

/// [8 rows, 16 columns], two groups of columns in an order of their own.
TEST(StoredRows, GptqIsScaleTimesCodeMinusZero) {
  constexpr int64_t kRows = 8, kCols = 16;
  const auto code = [](int64_t r, int64_t c) { return static_cast<uint32_t>((3 * r + 5 * c) % 16); };
  const auto zero = [](int64_t g, int64_t r) { return static_cast<uint32_t>((7 + g + r) % 16); };
  std::vector<uint32_t> codes(kCols / 8 * kRows), zeros(2);
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kCols; ++c) codes[static_cast<std::size_t>(c / 8 * kRows + r)] |= code(r, c) << (4 * (c % 8));
    for (int64_t g = 0; g < 2; ++g) zeros[static_cast<std::size_t>(g)] |= zero(g, r) << (4 * r);
  }
  std::vector<uint16_t> scales;  // float16: 2^-2 and 1.5
  for (int i = 0; i < 8; ++i) scales.push_back(0x3400);
  for (int i = 0; i < 8; ++i) scales.push_back(0x3E00);
  std::vector<int32_t> groups;
  for (int64_t c = 0; c < kCols; ++c) groups.push_back(static_cast<int32_t>(c % 2));
  const Made qweight(StoredType::kI32, {2, 8}, codes), qzeros(StoredType::kI32, {2, 1}, zeros),
      factors(StoredType::kF16, {2, 8}, scales), index(StoredType::kI32, {16}, groups);
  const auto expect_refused = [&](const TensorInfo& bad_index) {
    const StoredRows stored{.tensor = &qweight.info,
                            .rows = kRows,
                            .cols = kCols,
                            .format = {.kind = SourceFormat::Kind::kIntegers, .layout = &kGptq, .group_size = 8},
                            .matrix_rows = kRows,
                            .matrix_cols = kCols,
                            .scales = &factors.info,
                            .zeros = &qzeros.info,
                            .group_index = &bad_index};
    test::expect_error([&] { row_of(stored, 0); }, ErrorCode::kInvalidArgument, {"at column 3", "0 to 1"});
  };
  for (const int32_t bad : {2, -1}) {
    groups[3] = bad;
    const Made bad_index(StoredType::kI32, {16}, groups);
    expect_refused(bad_index.info);
  }
  for (const int64_t offset : {1, 0}) {
    const StoredRows stored{
        .tensor = &qweight.info,
        .rows = kRows,
        .cols = kCols,
        .format = {.kind = SourceFormat::Kind::kIntegers, .layout = &kGptq, .group_size = 8, .zero_offset = offset},
        .matrix_rows = kRows,
        .matrix_cols = kCols,
        .scales = &factors.info,
        .zeros = &qzeros.info,
        .group_index = &index.info};
    for (int64_t r = 0; r < kRows; ++r) {
      const std::vector<float> values = row_of(stored, r);
      for (int64_t c = 0; c < kCols; ++c) {
        const float scale = c % 2 == 0 ? 0.25F : 1.5F;
        const int64_t zero_point = (static_cast<int64_t>(zero(c % 2, r)) + offset) % 16;
        const auto steps = static_cast<float>(static_cast<int64_t>(code(r, c)) - zero_point);
        EXPECT_EQ(values[static_cast<std::size_t>(c)], scale * steps) << r << ", " << c;
      }
    }
    StoredRows columns = stored;  // from within a word into the next
    columns.first_col = 5;
    columns.cols = 6;
    const std::vector<float> all = row_of(stored, 3);
    EXPECT_EQ(row_of(columns, 3), std::vector<float>(all.begin() + 5, all.begin() + 11));
  }
}

/// The codes of row 0 as products take them.
struct TakenRow {
  explicit TakenRow(const StoredRows& stored, std::size_t groups, bool has_zeros)
      : codes(static_cast<std::size_t>(stored.cols)), scales(groups), zeros(has_zeros ? groups : 0) {
    read_codes(stored, 0, {.codes = codes, .scales = scales, .zero_points = zeros});
  }
  std::vector<uint8_t> codes;
  std::vector<float> scales;
  std::vector<uint8_t> zeros;
};

TEST(StoredRows, CodesOf8BitsAreTakenAsTheyAre) {
  const Made tensor(StoredType::kF8E4M3, {1, 4}, std::vector<uint8_t>{0x38, 0x01, 0xFE, 0x80});
  const Made scales(StoredType::kF32, {1, 2}, std::vector<float>{0.1F, 3});
  StoredRows stored{.tensor = &tensor.info,
                    .rows = 1,
                    .cols = 4,
                    .format = {.kind = SourceFormat::Kind::kFp8Block, .block_rows = 2, .block_cols = 3},
                    .matrix_rows = 1,
                    .matrix_cols = 4,
                    .scales = &scales.info};
  const TakenRow row(stored, 2, false);
  EXPECT_EQ(row.codes, (std::vector<uint8_t>{0x38, 0x01, 0xFE, 0x80}));
  EXPECT_EQ(row.scales, (std::vector<float>{0.1F, 3}));
  StoredRows columns = stored;
  columns.first_col = 3;
  columns.cols = 1;
  const TakenRow last(columns, 1, false);
  EXPECT_EQ(last.codes, std::vector<uint8_t>{0x80});
  EXPECT_EQ(last.scales, std::vector<float>{3});
  const Made nan(StoredType::kF8E4M3, {1, 4}, std::vector<uint8_t>{0x38, 0xFF, 0, 0});
  stored.tensor = &nan.info;
  test::expect_error([&] { TakenRow(stored, 2, false); }, ErrorCode::kInvalidArgument, {"nan", "column 1"});
  const Made infinite(StoredType::kF32, {1, 2}, std::vector<float>{INFINITY, 3});
  stored.tensor = &tensor.info;
  stored.scales = &infinite.info;
  test::expect_error([&] { TakenRow(stored, 2, false); }, ErrorCode::kInvalidArgument, {"scale", "inf"});
}

/// [8 rows, 16 columns] in groups of 8.
TEST(StoredRows, CodesOfGptqAreTakenWithScaleAndZeroPoint) {
  const Made qweight(StoredType::kI32, {2, 8}, std::vector<uint32_t>(16, 0x76543210));
  const Made scales(StoredType::kF16, {2, 8}, std::vector<uint16_t>(16, 0x2E66));  // about 0.1, with 10 bits of mantissa
  const auto refuse_or_take = [&](std::vector<int32_t> groups, uint32_t zeros, int64_t first_col = 0) {
    const Made qzeros(StoredType::kI32, {2, 1}, std::vector<uint32_t>{zeros, zeros ^ 1}), index(StoredType::kI32, {16}, groups);
    return TakenRow({.tensor = &qweight.info,
                     .rows = 8,
                     .cols = 16 - first_col,
                     .format = {.kind = SourceFormat::Kind::kIntegers, .layout = &kGptq, .group_size = 8, .zero_offset = 1},
                     .matrix_rows = 8,
                     .matrix_cols = 16,
                     .first_col = first_col,
                     .scales = &scales.info,
                     .zeros = &qzeros.info,
                     .group_index = &index.info},
                    static_cast<std::size_t>(2 - first_col / 8), true);
  };
  std::vector<int32_t> groups(16, 0);
  for (std::size_t c = 8; c < 16; ++c) groups[c] = 1;
  const TakenRow row = refuse_or_take(groups, 0x77777777);
  for (std::size_t c = 0; c < 16; ++c) EXPECT_EQ(row.codes[c], c % 8);
  EXPECT_EQ(row.scales, std::vector<float>(2, 0.0999755859375F));
  EXPECT_EQ(row.zeros, (std::vector<uint8_t>{8, 7})) << "stored less one";
  EXPECT_EQ(refuse_or_take(groups, 0x7777776F).zeros, (std::vector<uint8_t>{0, 15})) << "0 was stored as 15 and borrowed";
  const TakenRow second = refuse_or_take(groups, 0x77777777, 8);
  EXPECT_EQ(second.codes, (std::vector<uint8_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(second.zeros, std::vector<uint8_t>{7});
  std::swap(groups[7], groups[8]);
  test::expect_error([&] { refuse_or_take(groups, 0x77777777); }, ErrorCode::kInvalidArgument,
                     {"column 7", "group 1", "neighbouring"});
}

TEST(StoredRows, ProductsTakeBlocksOfSomeSizes) {
  SourceFormat format;
  EXPECT_FALSE(stored_codes_type(format));
  format.kind = SourceFormat::Kind::kFp8Block;
  EXPECT_EQ(stored_codes_type(format), (WeightType{WeightFormat::kE4M3, 128}));
  for (const int64_t split : {0, 512}) {
    format.block_cols = split;
    EXPECT_EQ(stored_codes_type(format), (WeightType{WeightFormat::kE4M3, 128})) << split;
  }
  format.block_cols = 96;
  test::expect_error([&] { stored_codes_type(format); }, ErrorCode::kInvalidArgument,
                     {"native", "96", "32, 64, multiples of 128"});
  format.kind = SourceFormat::Kind::kIntegers;
  EXPECT_EQ(stored_codes_type(format), (WeightType{WeightFormat::kInt4, 128, true}));
  format.bits = 8;
  EXPECT_FALSE(stored_codes_type(format));
}

/// Whole rows under one scale, in a product's groups of 128.
TEST(StoredRows, OneScaleServesSeveralGroups) {
  const Made tensor(StoredType::kI32, {1, 32}, std::vector<uint32_t>(32, 0x98765432));
  const Made scales(StoredType::kBF16, {1, 1}, std::vector<bfloat16>{from_float<bfloat16>(0.5F)});
  const StoredRows stored{.tensor = &tensor.info,
                          .rows = 1,
                          .cols = 256,
                          .format = {.kind = SourceFormat::Kind::kIntegers, .layout = &kPackQuantized, .group_size = 0},
                          .matrix_rows = 1,
                          .matrix_cols = 256,
                          .scales = &scales.info};
  const TakenRow row(stored, 2, true);
  EXPECT_EQ(row.scales, std::vector<float>(2, 0.5F));
  EXPECT_EQ(row.zeros, std::vector<uint8_t>(2, 8)) << "half of the codes' range";
  EXPECT_EQ(row.codes[255], 9);
  EXPECT_EQ(row_of(stored, 0)[255], 0.5F);
  StoredRows columns = stored;
  columns.first_col = columns.cols = 128;
  EXPECT_EQ(TakenRow(columns, 1, true).scales, std::vector<float>{0.5F});
  EXPECT_EQ(row_of(columns, 0)[127], 0.5F);
}

TEST(StoredRows, PlainValuesMayHave16BitsOfEitherKind) {
  const Made half(StoredType::kF16, {1, 4}, std::vector<uint16_t>{0x3C00, 0xC000, 0x0001, 0x7BFF});
  const StoredRows stored{.tensor = &half.info, .rows = 1, .cols = 4, .matrix_rows = 1, .matrix_cols = 4};
  EXPECT_EQ(row_of(stored, 0), (std::vector<float>{1, -2, 0x1p-24F, 65504}));
}

}  // namespace
}  // namespace ferry

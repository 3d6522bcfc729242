#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/kv_layout.h"
#include "kernels/ops.h"
#include "tests/kernels/attention_heads.h"
#include "tests/kernels/matrices.h"
#include "tests/support/draws.h"

// Caches of codes: what is appended, and attention over it.

namespace ferry {
namespace {

// Whole groups of 32 and whole 16 tokens, which units read where they are, and odd ones, which they copy.
constexpr AttentionHeads kCodedHeads[] = {{4, 2, 24, 7},    {3, 1, 40, 16},  {8, 8, 64, 5},  {16, 2, 256, 32}, {70, 1, 16, 3},
                                          {12, 1, 128, 16}, {40, 1, 96, 48}, {4, 1, 33, 16}, {1, 1, 1, 1},     {6, 2, 64, 16}};

/// Keys and values of some sequences as codes and as what these stand for; every slot behind a sequence's last token is NaN.
class CodedScene {
 public:
  CodedScene(DType dtype, AttentionHeads heads, std::vector<SequenceSpan> sequences)
      : dtype_(dtype), heads_(heads), sequences_(std::move(sequences)) {
    for (const SequenceSpan& s : sequences_) {
      num_rows_ = std::max(num_rows_, s.first_row + s.num_tokens);
      most_blocks_ = std::max(most_blocks_, (s.num_past + s.num_tokens + heads.block_tokens - 1) / heads.block_tokens);
    }
    const auto num_sequences = static_cast<int64_t>(sequences_.size());
    for (int64_t s = 0; s < num_sequences; ++s) {
      tables_.emplace_back();
      for (int64_t b = 0; b < most_blocks_; ++b)
        tables_.back().push_back(static_cast<int32_t>((most_blocks_ - 1 - b) * num_sequences + s));
    }
    queries_ = random_matrix(dtype, num_rows_, heads.num_heads * heads.head_dim, 21);
    num_runs_ = most_blocks_ * num_sequences * heads.num_kv_heads;
    for (std::vector<std::byte>* codes : {&keys_, &values_})
      codes->assign(static_cast<std::size_t>(num_runs_ * coded().run_bytes()), std::byte{0xff});
  }

  KvLayerView coded() {
    return {keys_.data(), values_.data(), DType::kI8, heads_.num_kv_heads, heads_.block_tokens, heads_.head_dim};
  }
  /// What the codes of now stand for.
  KvLayerView plain() {
    widen();
    return {plain_keys_.view().data, plain_values_.view().data, dtype_,
            heads_.num_kv_heads,     heads_.block_tokens,       heads_.head_dim};
  }
  const std::vector<std::byte>& keys() const { return keys_; }
  const std::vector<std::byte>& values() const { return values_; }
  std::vector<std::byte>& keys() { return keys_; }
  std::vector<std::byte>& values() { return values_; }

  /// Every token of every sequence, `piece` at a time.
  void append(const OpTable& table, int64_t piece) {
    test::TestStream stream(2);
    const int64_t cols = heads_.num_kv_heads * heads_.head_dim;
    for (std::size_t s = 0; s < sequences_.size(); ++s) {
      const int64_t num_tokens = sequences_[s].num_past + sequences_[s].num_tokens;
      const Matrix k = random_matrix(dtype_, num_tokens, cols, static_cast<uint32_t>(31 + 2 * s), 3.0f),
                   v = random_matrix(dtype_, num_tokens, cols, static_cast<uint32_t>(32 + 2 * s), 0.3f);
      for (int64_t t = 0; t < num_tokens; t += piece) {
        const int64_t count = std::min(piece, num_tokens - t);
        const std::vector<SequenceSpan> span{{0, count, t}};
        const std::vector<const int32_t*> table_of{tables_[s].data()};
        table.kv_append(stream, {.k = k.view().rows_from(t, count),
                                 .v = v.view().rows_from(t, count),
                                 .cache = coded(),
                                 .sequences = span,
                                 .block_tables = table_of});
      }
    }
  }

  /// Gives every group of codes another exponent, of least ‥ most, but one in `others` any of 1 ‥ 200, and makes one in `zeros`
  /// zeros; none, if these are 0. Heads of whole groups.
  void set_exponents(std::vector<std::byte>& rows, int least, int most, uint32_t others, uint32_t zeros) {
    std::minstd_rand random(7);
    const auto falls = [&](uint32_t one_in) { return one_in != 0 && random() % one_in == 0; };
    const int64_t code_bytes = heads_.block_tokens * heads_.head_dim;
    for (int64_t run = 0; run < std::ssize(rows); run += coded().run_bytes()) {
      for (int64_t group = 0; group < code_bytes / kKvGroupCols; ++group) {
        std::byte* codes = rows.data() + run + group * kKvGroupCols;
        std::byte& exponent = rows[static_cast<std::size_t>(run + code_bytes + group)];
        if (exponent == std::byte{kKvNanExponent}) continue;  // behind the last token
        const bool is_other = falls(others);
        const int first = is_other ? 1 : least, count = (is_other ? 200 : most) - first + 1;
        exponent = static_cast<std::byte>(first + static_cast<int>(random() % static_cast<uint32_t>(count)));
        if (!falls(zeros)) continue;
        exponent = std::byte{0};
        std::memset(codes, 0, kKvGroupCols);
      }
    }
  }
  void scale_queries(float factor) {
    for (int64_t r = 0; r < queries_.rows(); ++r) {
      for (int64_t c = 0; c < queries_.cols(); ++c) set_element(queries_.view(), r, c, element(queries_.view(), r, c) * factor);
    }
  }

  /// Over the codes, or over what they stand for; the s-th of `sequences` with the cache of cache_of[s].
  Matrix attend(const OpTable& table, int num_threads, const KvLayerView& cache, const std::vector<SequenceSpan>& sequences,
                const std::vector<std::size_t>& cache_of) {
    test::TestStream stream(num_threads);
    Matrix out(dtype_, num_rows_, queries_.cols());
    std::vector<const int32_t*> tables;
    for (const std::size_t s : cache_of) tables.push_back(tables_[s].data());
    table.attention(stream, {.q = queries_.view(),
                             .cache = cache,
                             .sequences = sequences,
                             .block_tables = tables,
                             .num_heads = heads_.num_heads,
                             .out = out.view()});
    return out;
  }
  Matrix attend(const OpTable& table, int num_threads, const KvLayerView& cache) {
    std::vector<std::size_t> all;
    for (std::size_t s = 0; s < sequences_.size(); ++s) all.push_back(s);
    return attend(table, num_threads, cache, sequences_, all);
  }

 private:
  void widen() {
    for (Matrix* plain : {&plain_keys_, &plain_values_}) {
      *plain = Matrix(dtype_, num_runs_ * heads_.block_tokens, heads_.head_dim);
      fill(plain->view(), std::numeric_limits<float>::quiet_NaN());
    }
    for (std::size_t s = 0; s < sequences_.size(); ++s) {
      for (int64_t p = 0; p < sequences_[s].num_past + sequences_[s].num_tokens; ++p) {
        for (int64_t h = 0; h < heads_.num_kv_heads; ++h) {
          const int64_t block = tables_[s][static_cast<std::size_t>(p / heads_.block_tokens)];
          const int64_t run = block * heads_.num_kv_heads + h, slot = p % heads_.block_tokens;
          widen_row(keys_, plain_keys_, run, slot);
          widen_row(values_, plain_values_, run, slot);
        }
      }
    }
  }
  void widen_row(const std::vector<std::byte>& coded_rows, Matrix& plain_rows, int64_t run, int64_t slot) {
    const std::byte* begin = coded_rows.data() + run * coded().run_bytes();
    const std::byte* exponents = begin + heads_.block_tokens * heads_.head_dim + slot * ((heads_.head_dim + 31) / 32);
    for (int64_t d = 0; d < heads_.head_dim; ++d) {
      const auto code = static_cast<int8_t>(begin[slot * heads_.head_dim + d]);
      const float value = std::ldexp(static_cast<float>(code), static_cast<int>(exponents[d / 32]) - 127);
      set_element(plain_rows.view(), run * heads_.block_tokens + slot, d, value);
    }
  }

  DType dtype_;
  AttentionHeads heads_;
  std::vector<SequenceSpan> sequences_;
  int64_t num_rows_ = 0, most_blocks_ = 0, num_runs_ = 0;
  Matrix queries_, plain_keys_, plain_values_;
  std::vector<std::byte> keys_, values_;
  std::vector<std::vector<int32_t>> tables_;
};

const std::vector<SequenceSpan> kShortAndLong = {{2, 1, 0}, {3, 1, 130}, {4, 67, 0}, {80, 5, 62}, {71, 9, 200}, {85, 12, 300}};

/// Everything that attends, reference included; for bf16 also the units that multiply it.
std::vector<const OpTable*> all_tables(DType dtype) {
  std::vector<const OpTable*> tables = available_op_tables();
  if (dtype == DType::kBF16) std::ranges::copy(available_unit_tables(), std::back_inserter(tables));
  return tables;
}

/// One row's codes and exponents behind each other.
std::vector<std::byte> coded_row(const OpTable& table, DType dtype, const std::vector<float>& row) {
  const auto cols = static_cast<int64_t>(row.size());
  Matrix x(dtype, 1, cols);
  for (int64_t c = 0; c < cols; ++c) set_element(x.view(), 0, c, row[static_cast<std::size_t>(c)]);
  test::TestStream stream(1);
  const KvLayerView shape{nullptr, nullptr, DType::kI8, 1, 1, cols};
  std::vector<std::byte> keys(static_cast<std::size_t>(shape.run_bytes())), values(keys);
  const std::vector<SequenceSpan> span{{0, 1, 0}};
  const int32_t block = 0;
  const std::vector<const int32_t*> tables{&block};
  table.kv_append(stream, {.k = x.view(),
                           .v = x.view(),
                           .cache = {keys.data(), values.data(), DType::kI8, 1, 1, cols},
                           .sequences = span,
                           .block_tables = tables});
  EXPECT_EQ(keys, values);
  return keys;
}

TEST(KvCodes, AreTheNearestWithTheLeastExponent) {
  for (const OpTable* table : available_op_tables()) {
    for (const DType dtype : kBothDTypes) {
      for (const float size : {1e-30f, 0.004f, 1.0f, 1e30f}) {
        std::vector<float> row(77);
        Matrix random = random_matrix(dtype, 1, 77, 5, size);
        for (std::size_t c = 0; c < row.size(); ++c) row[c] = element(random.view(), 0, static_cast<int64_t>(c));
        row[40] *= 64;  // a column that stands out costs its own group alone
        if (dtype == DType::kBF16) row[40] = round_to<bfloat16>(row[40]);
        const std::vector<std::byte> coded = coded_row(*table, dtype, row);
        for (std::size_t group = 0; group < 3; ++group) {
          const double step = std::ldexp(1.0, static_cast<int>(coded[77 + group]) - 127);
          double largest = 0;
          for (std::size_t c = 32 * group; c < std::min<std::size_t>(77, 32 * group + 32); ++c) {
            const double x = static_cast<double>(row[c]);
            const double is = static_cast<double>(static_cast<int8_t>(coded[c])) * step;
            largest = std::max(largest, std::abs(x));
            EXPECT_LE(std::abs(x - is), std::abs(x) > 127.5 * step ? step : step / 2) << table->name << " column " << c;
          }
          EXPECT_LT(largest, 128 * step);
          EXPECT_GE(largest, 64 * step);
        }
      }
    }
  }
}

TEST(KvCodes, OfZerosAndOfWhatIsNoNumber) {
  constexpr float kEndless = std::numeric_limits<float>::infinity();
  for (const OpTable* table : available_op_tables()) {
    for (const DType dtype : kBothDTypes) {
      std::vector<float> row(160, 1.0f);
      std::fill_n(row.begin(), 32, 0.0f);
      std::fill_n(row.begin() + 32, 32, 1e-38f);  // too small for an exponent
      row[70] = std::numeric_limits<float>::quiet_NaN();
      row[100] = -kEndless;
      const std::vector<std::byte> coded = coded_row(*table, dtype, row);
      const std::vector<int> exponents{0, 0, 255, 255, 121};
      for (std::size_t c = 0; c < 160; ++c)
        EXPECT_EQ(static_cast<int>(static_cast<int8_t>(coded[c])), c < 128 ? 0 : 64) << table->name << " column " << c;
      for (std::size_t group = 0; group < 5; ++group)
        EXPECT_EQ(static_cast<int>(coded[160 + group]), exponents[group]) << table->name << " group " << group;
    }
  }
}

TEST(KvCodes, TheLargestStaysWithinSevenBits) {
  for (const OpTable* table : available_op_tables()) {
    const std::vector<std::byte> coded = coded_row(*table, DType::kF32, {127.9f, -127.6f, 127.4f, 0.5f, 1.5f, -2.5f, 0.49f});
    const std::vector<int> expected{127, -127, 127, 0, 2, -2, 0, 127};
    for (std::size_t c = 0; c < coded.size(); ++c)
      EXPECT_EQ(static_cast<int>(static_cast<int8_t>(coded[c])), expected[c]) << table->name << " byte " << c;
    EXPECT_TRUE(std::isfinite(std::ldexp(127.0f, static_cast<int>(coded_row(*table, DType::kF32, {3.4e38f})[1]) - 127)));
  }
}

TEST(KvCodes, OfWhatCodesStandForAreTheSame) {
  for (const OpTable* table : available_op_tables()) {
    for (const DType dtype : kBothDTypes) {
      const Matrix random = random_matrix(dtype, 1, 200, 9, 4.0f);
      std::vector<float> row(200), again(200);
      for (std::size_t c = 0; c < row.size(); ++c) row[c] = element(random.view(), 0, static_cast<int64_t>(c));
      const std::vector<std::byte> coded = coded_row(*table, dtype, row);
      for (std::size_t c = 0; c < row.size(); ++c)
        again[c] = std::ldexp(static_cast<float>(static_cast<int8_t>(coded[c])), static_cast<int>(coded[200 + c / 32]) - 127);
      EXPECT_NE(row, again);
      EXPECT_EQ(coded_row(*table, dtype, again), coded) << table->name;
    }
  }
}

TEST(KvCodes, OfARowDependOnNeitherTableNorPiece) {
  using Pieces = std::vector<int64_t>;
  for (const DType dtype : kBothDTypes) {
    for (const AttentionHeads heads : kCodedHeads) {
      CodedScene expected(dtype, heads, kShortAndLong);
      expected.append(ref::kOpTable, 1000);
      for (const OpTable* table : available_op_tables()) {
        for (const int64_t piece : test::draws(Pieces{1, 37, 1000}, Pieces{37})) {
          CodedScene scene(dtype, heads, kShortAndLong);
          scene.append(*table, piece);
          EXPECT_EQ(scene.keys(), expected.keys()) << table->name << " " << heads.text();
          EXPECT_EQ(scene.values(), expected.values()) << table->name << " " << heads.text();
        }
      }
    }
  }
}

TEST(KvCodes, AttentionHasTheBitsOfWhatTheyStandFor) {
  for (const DType dtype : kBothDTypes) {
    for (const AttentionHeads heads : kCodedHeads) {
      CodedScene scene(dtype, heads, kShortAndLong);
      scene.append(ref::kOpTable, 1000);
      const KvLayerView plain = scene.plain();
      for (const OpTable* table : all_tables(dtype)) {
        const Matrix expected = scene.attend(*table, 1, plain);
        for (const int num_threads : {1, 2, 5}) {
          expect_same_bits(expected.view(), scene.attend(*table, num_threads, scene.coded()).view(),
                           std::string(table->name) + " " + dtype_name(dtype) + " " + heads.text());
        }
      }
    }
  }
}

// Units multiply codes of few rows as whole numbers where no sum leaves the range of normal numbers, and scaled elsewhere.
TEST(KvCodes, AttentionHasTheBitsOfWhatTheyStandForAtAnySize) {
  struct Sizes {
    int least_key, most_key, least_value, most_value;
    float queries;
    uint32_t others, zeros;
  };
  using Heads = std::vector<AttentionHeads>;
  const Sizes cases[] = {
      {100, 122, 90, 127, 1.0f, 0, 0},   {1, 135, 112, 120, 1.0f, 0, 0},     {112, 120, 112, 180, 1.0f, 0, 0},
      {112, 120, 1, 120, 1.0f, 0, 0},    {75, 127, 112, 120, 0x1p70f, 0, 0}, {112, 120, 112, 120, 0x1p-60f, 0, 0},
      {121, 121, 67, 67, 100.0f, 0, 2},  // the heaviest keys' values are zeros, others too light to be scaled
      {112, 120, 112, 120, 1.0f, 500, 9}};
  for (const AttentionHeads heads :
       test::draws(Heads{{16, 2, 256, 32}, {6, 2, 64, 16}, {3, 1, 96, 16}}, Heads{{6, 2, 64, 16}})) {
    for (const Sizes& sizes : cases) {
      CodedScene scene(DType::kBF16, heads, kShortAndLong);
      scene.append(ref::kOpTable, 1000);
      scene.set_exponents(scene.keys(), sizes.least_key, sizes.most_key, sizes.others, 0);
      scene.set_exponents(scene.values(), sizes.least_value, sizes.most_value, sizes.others, sizes.zeros);
      scene.scale_queries(sizes.queries);
      const KvLayerView plain = scene.plain();
      for (const OpTable* table : available_unit_tables()) {
        const Matrix expected = scene.attend(*table, 1, plain);
        expect_same_bits(expected.view(), scene.attend(*table, 2, scene.coded()).view(),
                         std::string(table->name) + " " + heads.text() + ", case " + std::to_string(&sizes - cases));
      }
    }
  }
}

// Splits of 2048 keys, by several threads or one; few rows, those of one piece and those of several.
TEST(KvCodes, AttentionOverALongPastToo) {
  for (const AttentionHeads heads : {AttentionHeads{8, 1, 256, 16}, {2, 1, 64, 32}, {4, 2, 48, 16}}) {
    for (const int64_t num_tokens : {1, 2, 5, 40}) {
      CodedScene scene(DType::kBF16, heads, {{0, num_tokens, 2 * 2048 - 3}});
      scene.append(ref::kOpTable, 5000);
      const KvLayerView plain = scene.plain();
      for (const OpTable* table : available_unit_tables()) {
        const Matrix expected = scene.attend(*table, 1, plain);
        for (const int num_threads : {1, 2, 9}) {
          expect_same_bits(expected.view(), scene.attend(*table, num_threads, scene.coded()).view(),
                           std::string(table->name) + " " + heads.text() + ", " + std::to_string(num_tokens) + " rows");
        }
      }
    }
  }
}

TEST(KvCodes, AttentionInPiecesHasTheWholesBits) {
  constexpr int64_t kTokens = 150;
  for (const DType dtype : kBothDTypes) {
    for (const AttentionHeads heads : kCodedHeads) {
      CodedScene scene(dtype, heads, {{0, kTokens, 0}});
      scene.append(ref::kOpTable, kTokens);
      for (const OpTable* table : all_tables(dtype)) {
        const Matrix whole = scene.attend(*table, 2, scene.coded());
        for (const int64_t piece : {int64_t{1}, int64_t{3}, int64_t{37}}) {
          std::vector<SequenceSpan> pieces;
          for (int64_t t = 0; t < kTokens; t += piece) pieces.push_back({t, std::min(piece, kTokens - t), t});
          const Matrix out = scene.attend(*table, 2, scene.coded(), pieces, std::vector<std::size_t>(pieces.size(), 0));
          expect_same_bits(whole.view(), out.view(), std::string(table->name) + " " + heads.text());
        }
      }
    }
  }
}

TEST(KvCodes, AKeyOrValueThatIsNoNumberIsSeen) {
  for (const AttentionHeads heads : {AttentionHeads{4, 2, 64, 16}, {4, 2, 40, 16}}) {
    for (const OpTable* table : all_tables(DType::kBF16)) {
      CodedScene scene(DType::kBF16, heads, {{0, 1, 20}});
      scene.append(ref::kOpTable, 1000);
      const KvLayerView cache = scene.coded();
      std::memset(cache.values.raw(), 0, static_cast<std::size_t>(heads.head_dim));  // of a row that is seen
      cache.values.raw()[heads.block_tokens * heads.head_dim] = std::byte{kKvNanExponent};
      const Matrix out = scene.attend(*table, 1, cache);
      EXPECT_TRUE(std::isnan(element(out.view(), 0, 5))) << table->name << " " << heads.text();
    }
  }
}

TEST(KvCodesDeathTest, OfOtherValuesThanTheRowsAreRefused) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Matrix rows(DType::kF32, 1, 8), cache_rows(DType::kBF16, 16, 8);
  const std::vector<SequenceSpan> span{{0, 1, 0}};
  const int32_t block = 0;
  const std::vector<const int32_t*> tables{&block};
  const KvLayerView cache{cache_rows.view().data, cache_rows.view().data, DType::kBF16, 1, 16, 8};
  for (const OpTable* table : available_op_tables()) {
    test::TestStream stream(1);
    EXPECT_DEATH(table->kv_append(
                     stream, {.k = rows.view(), .v = rows.view(), .cache = cache, .sequences = span, .block_tables = tables}),
                 "cache.dtype == args.k.dtype");
    EXPECT_DEATH(
        table->attention(
            stream,
            {.q = rows.view(), .cache = cache, .sequences = span, .block_tables = tables, .num_heads = 1, .out = rows.view()}),
        "cache.dtype == args.q.dtype");
  }
}

}  // namespace
}  // namespace ferry

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <string>

#include "kernels/weight_format.h"
#include "tests/kernels/matrices.h"
#include "tests/support/op_test.h"

// What shaders get wrong more easily than the processor's ops, beside the tests that run on every implementation: exact bits of
// quotients, values at the ends of the range, loads of 16 bytes, grids too long for one axis.

namespace ferry::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class VulkanOps : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (vulkan_table() == nullptr) GTEST_SKIP() << "no Vulkan device";
  }
  static const OpTable& device() { return *vulkan_table(); }
  static bool is_f32() { return GetParam() == DType::kF32; }

  TestStream stream_{1};
};
INSTANTIATE_TEST_SUITE_P(DTypes, VulkanOps, testing::ValuesIn(kBothDTypes),
                         [](const auto& dtype) { return std::string(dtype_name(dtype.param)); });

/// Rows whose scales and quotients may round the wrong way.
enum class RowKind { kAnyExponent, kTies, kAnyBits, kLeastScales, kBroken, kPowersOfTwo, kBesidePowersOfTwo, kCount };

/// Between -1 and 1 in steps of 1e-6.
float fraction(std::mt19937& engine) { return static_cast<float>(static_cast<int>(engine() % 2000001) - 1000000) * 1e-6f; }
float two_to(std::mt19937& engine, int least, int largest) {
  return std::ldexp(1.0f, least + static_cast<int>(engine() % static_cast<uint32_t>(largest - least + 1)));
}
float finite_bits(std::mt19937& engine) {
  const auto x = std::bit_cast<float>(static_cast<uint32_t>(engine()));
  return std::isfinite(x) ? x : 1.0f;
}

void fill_row(TestMatrix& x, int64_t r, RowKind kind, std::mt19937& engine) {
  const int64_t cols = x.view().cols;
  const float size = two_to(engine, -149, 120);
  for (int64_t c = 0; c < cols; ++c) {
    switch (kind) {
      case RowKind::kTies: x.set(r, c, static_cast<float>(static_cast<int>(engine() % 509) - 254) * 0.5f); break;
      case RowKind::kAnyBits: x.set(r, c, finite_bits(engine)); break;
      case RowKind::kLeastScales: x.set(r, c, std::ldexp(fraction(engine), -118 - static_cast<int>(r / 7 % 4))); break;
      default: x.set(r, c, fraction(engine) * size);
    }
  }
  // The largest of a row gives its scale: 1 and other powers of two, and the numbers next to them.
  if (kind == RowKind::kTies) x.set(r, 0, 127.0f);
  if (kind == RowKind::kPowersOfTwo) x.set(r, 0, 127.0f * size);
  if (kind == RowKind::kBesidePowersOfTwo) x.set(r, 0, std::nextafter(127.0f, r % 2 == 0 ? 0.0f : 200.0f) * size);
  if (kind == RowKind::kBroken) x.set(r, cols / 2, r % 2 == 0 ? kNan : -kInfinity);
}

TEST_P(VulkanOps, QuantizeRowsGivesTheBitsOfRef) {
  std::mt19937 engine(3);
  for (const auto& [cols, padding] : {std::pair<int64_t, int64_t>{1, 0}, {64, 0}, {100, 3}, {512, 0}, {515, 3}, {2500, 0}}) {
    const int64_t rows = std::clamp<int64_t>(100000 / cols, 70, 3000), codes_stride = quantized_cols(cols) + padding;
    TestMatrix x(GetParam(), rows, cols, padding);
    for (int64_t r = 0; r < rows; ++r) fill_row(x, r, static_cast<RowKind>(r % static_cast<int>(RowKind::kCount)), engine);
    std::vector<float> actual_scales(static_cast<std::size_t>(rows), 5.0f), expected_scales(actual_scales.size(), 6.0f);
    std::vector<int8_t> actual(static_cast<std::size_t>(rows * codes_stride), 77), expected = actual;
    const auto quantize = [&](const OpTable& ops, std::vector<int8_t>& codes, std::vector<float>& scales) {
      const MatrixView view{reinterpret_cast<std::byte*>(codes.data()), DType::kI8, rows, quantized_cols(cols), codes_stride};
      ops.quantize_rows(stream_, {.x = x.view(), .codes = view, .scales = scales.data()});
    };
    quantize(device(), actual, actual_scales);
    quantize(ref::kOpTable, expected, expected_scales);
    EXPECT_TRUE(all_close(actual_scales, expected_scales, kExact)) << cols << " columns";
    const auto differing = std::ranges::mismatch(actual, expected).in1 - actual.begin();
    EXPECT_EQ(differing, std::ssize(actual)) << cols << " columns: codes of row " << differing / codes_stride;
  }
}

/// Queries, keys and values side by side.
struct Segments {
  Segments(DType dtype, int64_t heads, int64_t dim, std::vector<int64_t> segment_ends, float scale)
      : num_heads(heads), cols(heads * dim), ends(std::move(segment_ends)) {
    qkv = TestMatrix(dtype, ends.back(), 3 * cols).fill_random(7, scale);
  }
  TestMatrix attend(const OpTable& ops, Stream& stream, int64_t first_row, std::span<const int64_t> segment_ends) const {
    const ConstMatrixView rows = qkv.view().rows_from(first_row, segment_ends.back());
    TestMatrix out(rows.dtype, rows.rows, cols);
    ops.segment_attention(stream, {.q = rows.cols_from(0, cols),
                                   .k = rows.cols_from(cols, cols),
                                   .v = rows.cols_from(2 * cols, cols),
                                   .segment_ends = segment_ends,
                                   .num_heads = num_heads,
                                   .out = out.view()});
    return out;
  }

  int64_t num_heads, cols;
  std::vector<int64_t> ends;
  TestMatrix qkv{DType::kF32, 0, 0};
};

TEST_P(VulkanOps, SegmentsLikeRefAndOneAtATime) {
  for (const auto& [heads, dim] : {std::pair<int64_t, int64_t>{4, 12}, {2, 72}, {3, 64}, {1, 33}, {1, 256}, {1, 600}}) {
    const Segments segments(GetParam(), heads, dim, {1, 5, 5, 70, 203}, 1.0f);
    const TestMatrix together = segments.attend(device(), stream_, 0, segments.ends);
    const TestMatrix expected = segments.attend(ref::kOpTable, stream_, 0, segments.ends);
    expect_close(expected.view(), together.view(), 5e-6f, "heads of " + std::to_string(dim));
    const int64_t num_last = 133;
    const TestMatrix alone = segments.attend(device(), stream_, 70, {&num_last, 1});
    EXPECT_TRUE(all_close(alone.view(), together.view().rows_from(70, num_last), kExact)) << "heads of " << dim;
  }
}

// What is not finite comes out where it does in ref: in its segment and head, and in a value's case in its column.
TEST_P(VulkanOps, SegmentsKeepWhatIsNotFinite) {
  Segments segments(GetParam(), 2, 24, {60, 150}, 2.0f);
  segments.qkv.set(50, 3, kNan);                  // a query of the first segment's first head
  segments.qkv.set(20, 48 + 30, kInfinity);       // a key of its second head
  segments.qkv.set(120, 2 * 48 + 31, kInfinity);  // a value of the second segment's second head
  const TestMatrix actual = segments.attend(device(), stream_, 0, segments.ends);
  const TestMatrix expected = segments.attend(ref::kOpTable, stream_, 0, segments.ends);
  EXPECT_TRUE(std::isnan(expected.get(50, 0)) && !std::isfinite(expected.get(149, 31)));
  EXPECT_TRUE(all_close(actual.view(), expected.view(), {2e-5, is_f32() ? 1e-5 : 0.0079}));
}

TEST_P(VulkanOps, RouterOfEveryKindLikeRef) {
  const int64_t rows = 20;
  for (const int64_t num_experts : {3, 60, 256, 257, 512}) {
    const int64_t top_k = std::min<int64_t>(num_experts, 8);
    TestMatrix logits = TestMatrix(GetParam(), rows, num_experts, 1).fill_random(5, 2.0f);
    logits.set(3, num_experts / 2, kNan);
    logits.set(4, 0, kInfinity);
    logits.set(5, 1, -kInfinity);
    const std::vector<float> bias = random_floats(static_cast<std::size_t>(num_experts), 9, 0.1f);
    for (int kind = 0; kind < 8; ++kind) {
      const auto route = [&](const OpTable& ops, std::vector<int32_t>& ids, std::vector<float>& weights) {
        ids.resize(static_cast<std::size_t>(rows * top_k));
        weights.resize(ids.size());
        ops.router_topk(stream_, {.logits = logits.view(),
                                  .top_k = top_k,
                                  .is_sigmoid = kind % 2 == 1,
                                  .bias = kind / 2 % 2 == 1 ? bias.data() : nullptr,
                                  .is_normalised = kind / 4 == 1,
                                  .sum_eps = 1e-20f,
                                  .scale = 2.5f,
                                  .topk_idx = ids.data(),
                                  .topk_weights = weights.data()});
      };
      std::vector<int32_t> actual_ids, expected_ids;
      std::vector<float> actual, expected;
      route(device(), actual_ids, actual);
      route(ref::kOpTable, expected_ids, expected);
      EXPECT_EQ(actual_ids, expected_ids) << num_experts << " experts, kind " << kind;
      EXPECT_TRUE(all_close(actual, expected, is_f32() ? Tolerance{0.0, 2e-6} : Tolerance{0.0, 0.0079, 0.02}))
          << num_experts << " experts, kind " << kind;
    }
  }
}

// Rows that begin at multiples of 16 bytes are loaded in packs, the last of which may reach behind the row; others element by
// element: the same bits.
TEST_P(VulkanOps, AlignmentChangesNoBit) {
  using Run = std::function<void(const TestMatrix& x, const TestMatrix& gate, MatrixView out)>;
  for (const int64_t cols : {64, 203, 512, 519, 4104}) {
    const int64_t to_pack = (8 - cols % 8) % 8;
    const std::vector<float> weight = random_floats(static_cast<std::size_t>(cols), 2);
    const std::vector<float> bias = random_floats(static_cast<std::size_t>(cols), 3);
    const Run runs[] = {
        [&](const TestMatrix& x, const TestMatrix&, MatrixView out) {
          device().rms_norm(stream_, {.x = x.view(), .weight = weight.data(), .eps = 1e-6f, .out = out});
        },
        [&](const TestMatrix& x, const TestMatrix& gate, MatrixView out) {
          device().gated_rms_norm(stream_, {.x = x.view(),
                                            .gate = gate.view(),
                                            .weight = weight.data(),
                                            .weight_dtype = DType::kBF16,
                                            .eps = 1e-6f,
                                            .out = out});
        },
        [&](const TestMatrix& x, const TestMatrix&, MatrixView out) {
          device().layer_norm(stream_, {.x = x.view(), .weight = weight.data(), .bias = bias.data(), .eps = 1e-6f, .out = out});
        },
        [&](const TestMatrix& x, const TestMatrix&, MatrixView out) {
          device().add_bias(stream_, {.x = x.view(), .bias = bias.data(), .activation = BiasActivation::kGelu, .out = out});
        },
        [&](const TestMatrix& x, const TestMatrix& gate, MatrixView out) {
          device().sigmoid_gate(stream_, {.x = x.view(), .gate = gate.view(), .out = out});
        }};
    const TestMatrix x = TestMatrix(GetParam(), 5, cols, to_pack).fill_random(1);
    const TestMatrix odd_x = TestMatrix(GetParam(), 5, cols, to_pack + 3).fill_random(1);
    const TestMatrix gate = TestMatrix(GetParam(), 5, cols, to_pack + 8).fill_random(4);
    const TestMatrix odd_gate = TestMatrix(GetParam(), 5, cols, to_pack + 5).fill_random(4);
    for (const Run& run : runs) {
      TestMatrix out(GetParam(), 5, cols, to_pack), odd_out(GetParam(), 5, cols, to_pack + 1);
      run(x, gate, out.view());
      run(odd_x, odd_gate, odd_out.view());
      EXPECT_TRUE(all_close(odd_out.view(), out.view(), kExact)) << "op " << &run - runs << " of " << cols << " columns";
      EXPECT_TRUE(out.padding_intact() && odd_out.padding_intact()) << "op " << &run - runs << " of " << cols << " columns";
    }
  }
}

TEST_P(VulkanOps, SpecialValuesLikeRef) {
  const std::vector<float> values = {0.0f,   -0.0f,   kInfinity, -kInfinity, kNan, 1e30f, -1e30f, 3e38f, -3e38f, 88.0f, -88.0f,
                                     100.0f, -100.0f, 20.0f,     -20.0f,     6.0f, -6.0f, 1e-20f, -3.0f, 3.0f,   0.5f};
  const int64_t count = std::ssize(values);
  TestMatrix x(GetParam(), 1, count), gate_up = TestMatrix(GetParam(), 1, 2 * count).fill(1.0f);
  TestMatrix actual(GetParam(), 1, count), expected(GetParam(), 1, count);
  for (int64_t i = 0; i < count; ++i) {
    x.set(0, i, values[static_cast<std::size_t>(i)]);
    gate_up.set(0, i, values[static_cast<std::size_t>(i)]);
  }
  const Tolerance tolerance{1e-6, is_f32() ? 2e-6 : 0.008};
  device().swiglu(stream_, {.gate_up = gate_up.view(), .out = actual.view()});
  ref::kOpTable.swiglu(stream_, {.gate_up = gate_up.view(), .out = expected.view()});
  EXPECT_TRUE(all_close(actual.view(), expected.view(), tolerance));
  const std::vector<float> bias(values.size(), 0.0f);
  for (const BiasActivation activation : {BiasActivation::kGelu, BiasActivation::kGeluTanh}) {
    AddBiasArgs args{.x = x.view(), .bias = bias.data(), .activation = activation, .out = actual.view()};
    device().add_bias(stream_, args);
    args.out = expected.view();
    ref::kOpTable.add_bias(stream_, args);
    EXPECT_TRUE(all_close(actual.view(), expected.view(), tolerance)) << static_cast<int>(activation);
  }
}

TEST(VulkanRows, CodesAreGatheredWithTheirScales) {
  if (vulkan_table() == nullptr) GTEST_SKIP() << "no Vulkan device";
  TestStream stream(1);
  constexpr int64_t kRows = 9, kGathered = 30;
  std::vector<int32_t> row_idx;
  for (int32_t i = 0; i < kGathered; ++i) row_idx.push_back(i * 5 % kRows);
  const std::vector<float> scales = random_floats(kRows, 1);
  for (const auto& [cols, stride] : {std::pair<int64_t, int64_t>{64, 64}, {128, 129}, {63, 63}, {63, 64}}) {
    std::vector<int8_t> codes(static_cast<std::size_t>(kRows * stride));
    for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<int8_t>(i * 37 % 251);
    std::vector<int8_t> gathered(static_cast<std::size_t>(kGathered * cols), 77);
    std::vector<float> gathered_scales(kGathered, kNan);
    vulkan_table()->gather_rows(stream,
                                {.x = {reinterpret_cast<const std::byte*>(codes.data()), DType::kI8, kRows, cols, stride},
                                 .row_idx = row_idx,
                                 .out = {reinterpret_cast<std::byte*>(gathered.data()), DType::kI8, kGathered, cols, cols},
                                 .scales = scales.data(),
                                 .out_scales = gathered_scales.data()});
    for (int64_t i = 0; i < kGathered; ++i) {
      const auto from = static_cast<std::size_t>(row_idx[static_cast<std::size_t>(i)]);
      const auto bytes = static_cast<std::size_t>(cols);
      const int8_t* const row = gathered.data() + i * cols;
      EXPECT_EQ(std::memcmp(row, codes.data() + static_cast<int64_t>(from) * stride, bytes), 0) << cols << " row " << i;
      EXPECT_EQ(gathered_scales[static_cast<std::size_t>(i)], scales[from]);
    }
  }
}

// A grid's axis has 65535 workgroups: more rows are folded into the second axis, whose last column may be partly empty.
TEST(VulkanRows, GridsAreFolded) {
  if (vulkan_table() == nullptr) GTEST_SKIP() << "no Vulkan device";
  TestStream stream(1);
  const int64_t rows = 65537 + 64, period = 101;
  const TestMatrix logits = TestMatrix(DType::kF32, period, 5).fill_random(1);
  TestMatrix many(DType::kF32, rows, 5);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < 5; ++c) many.set(r, c, logits.get(r % period, c));
  }
  const auto route = [&](const TestMatrix& x, std::vector<int32_t>& ids) {
    std::vector<float> weights(ids.size());
    vulkan_table()->router_topk(stream,
                                {.logits = x.view(), .top_k = 2, .topk_idx = ids.data(), .topk_weights = weights.data()});
  };
  std::vector<int32_t> ids(static_cast<std::size_t>(2 * rows), -1), few(2 * period, -1);
  route(many, ids);
  route(logits, few);
  for (std::size_t i = 0; i < ids.size(); ++i) ASSERT_EQ(ids[i], few[i % few.size()]) << "row " << i / 2;
}

}  // namespace
}  // namespace ferry::test

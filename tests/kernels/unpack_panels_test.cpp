#include "kernels/cpu/unpack_panels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/pack_panels.h"
#include "kernels/e4m3.h"
#include "runtime/base/aligned_buffer.h"
#include "tests/kernels/matrices.h"
#include "tests/kernels/products.h"

namespace ferry {
namespace {

struct PanelCase {
  WeightType type;
  int64_t n, k;
  WeightUse use;

  std::string text() const {
    return weight_type_name(type) + " [" + std::to_string(n) + ", " + std::to_string(k) + "]" +
           (use == WeightUse::kGated ? " gated" : "");
  }
};

constexpr WeightType kInt8{WeightFormat::kInt8};
constexpr WeightType int4(int32_t group_size, bool is_wide = false) { return {WeightFormat::kInt4, group_size, is_wide}; }
constexpr WeightType e4m3(int32_t group_size) { return {WeightFormat::kE4M3, group_size}; }

/// Codes, scales and zero points of every value that the type has.
QuantizedMatrix random_codes(const PanelCase& c) {
  QuantizedMatrix w{
      .type = c.type, .n = c.n, .k = c.k, .group = c.type.format == WeightFormat::kInt8 ? c.k : c.type.group_size};
  std::mt19937 random(7);
  const bool is_int4 = c.type.format == WeightFormat::kInt4, is_int8 = c.type.format == WeightFormat::kInt8;
  for (int64_t i = 0; i < c.n * c.k; ++i) {
    const auto code = static_cast<uint8_t>(random());
    const bool is_nan = !is_int4 && !is_int8 && (code & 0x7F) == kE4M3NaN;
    w.codes.push_back(is_int4 ? code % 16 : is_int8 ? std::max<uint8_t>(code, 1) : is_nan ? uint8_t{1} : code);
  }
  const uint32_t kept = !is_int4 ? ~uint32_t{0} : c.type.is_wide ? ~0xFU : ~((uint32_t{1} << 19) - 1);
  for (int64_t i = 0; i < c.n * w.num_groups(); ++i) {
    const bool has_sign = !is_int8 && (!is_int4 || c.type.is_wide);
    const uint32_t sign = has_sign ? static_cast<uint32_t>(random()) & 0x80000000U : 0;
    const uint32_t bits = sign | 118U << 23 | (static_cast<uint32_t>(random()) & 0x7FFFFFU);
    w.scales.push_back(std::bit_cast<float>(bits & kept));
    if (c.type.is_integer()) w.zero_points.push_back(is_int8 ? 128 : static_cast<uint8_t>(random() % 16));
  }
  return w;
}

AlignedBuffer pack(const QuantizedMatrix& w, WeightUse use) {
  const PanelColumns columns{w.n, use == WeightUse::kGated};
  AlignedBuffer panels(static_cast<std::size_t>(columns.num_panels() * panel_bytes(w.type, w.k)));
  std::memset(panels.data(), 0, panels.size());
  pack_panels(w, columns, panels.data());
  return panels;
}

std::span<const std::byte> bytes_of(const AlignedBuffer& panels, const QuantizedMatrix& w, WeightUse use) {
  const PanelColumns columns{w.n, use == WeightUse::kGated};
  return {panels.data(), static_cast<std::size_t>(columns.num_panels() * panel_bytes(w.type, w.k))};
}

std::vector<PanelCase> all_cases() {
  using enum WeightUse;
  std::vector<PanelCase> cases;
  for (const int32_t group : {32, 64, 128, 256}) {
    for (const bool is_wide : {false, true}) {
      cases.push_back({int4(group, is_wide), 33, 2 * group, kPlain});
      cases.push_back({int4(group, is_wide), 70, 256, kGated});
    }
    for (const int64_t k : {1, 33, 258, 515}) cases.push_back({e4m3(group), 45, k, kPlain});
    cases.push_back({e4m3(group), 34, 96, kGated});
  }
  for (const int64_t k : {1, 3, 64, 97, 321}) cases.push_back({kInt8, 65, k, kPlain});
  cases.push_back({kInt8, 2, 10, kGated});
  cases.push_back({kInt8, 66, 130, kGated});
  return cases;
}

TEST(UnpackPanels, GivesTheCodesBackThatWerePacked) {
  ThreadPool pool(3);
  for (const PanelCase& c : all_cases()) {
    const QuantizedMatrix w = random_codes(c);
    const AlignedBuffer panels = pack(w, c.use);
    for (ThreadPool* threads : {static_cast<ThreadPool*>(nullptr), &pool}) {
      const QuantizedMatrix back = unpack_panels(w.n, w.k, w.type, c.use, bytes_of(panels, w, c.use), threads);
      ASSERT_TRUE(back.type == w.type && back.n == w.n && back.k == w.k && back.group == w.group) << c.text();
      ASSERT_EQ(back.codes, w.codes) << c.text();
      ASSERT_EQ(back.scales, w.scales) << c.text();
      ASSERT_EQ(back.zero_points, w.zero_points) << c.text();
    }
  }
}

TEST(UnpackPanels, GivesBackWhatQuantisationFinds) {
  const Matrix weights = random_matrix(DType::kBF16, 41, 256, 11);
  for (const WeightType type : {kInt8, int4(32), int4(64), int4(128), int4(256)}) {
    const QuantizedMatrix w = quantize_weights(weights.view(), type);
    const QuantizedMatrix back =
        unpack_panels(w.n, w.k, type, WeightUse::kPlain, bytes_of(pack(w, WeightUse::kPlain), w, WeightUse::kPlain));
    EXPECT_TRUE(back.codes == w.codes && back.scales == w.scales && back.zero_points == w.zero_points)
        << weight_type_name(type);
  }
}

/// What has another layout than panels multiplies them as if it had packed the codes itself.
TEST(UnpackPanels, PanelsAreAdoptedByWhatHasAnotherLayout) {
  const auto ref = make_ref_matmul();
  EXPECT_FALSE(ref->borrows_panels());
  for (const PanelCase& c :
       {PanelCase{kInt8, 34, 65, WeightUse::kGated}, PanelCase{int4(32), 33, 96, WeightUse::kPlain},
        PanelCase{int4(64, true), 40, 128, WeightUse::kPlain}, PanelCase{e4m3(128), 20, 160, WeightUse::kGated}}) {
    const QuantizedMatrix w = random_codes(c);
    const AlignedBuffer panels = pack(w, c.use);
    const std::unique_ptr<PackedMatrix> adopted = ref->adopt(w.n, w.k, w.type, c.use, bytes_of(panels, w, c.use));
    EXPECT_EQ(adopted->is_gated(), c.use == WeightUse::kGated);
    const Matrix x = random_matrix(DType::kBF16, 5, w.k, 13);
    const CodedRows coded(x);
    const MatmulRows rows = w.type.is_integer() ? coded.view() : MatmulRows{x.view()};
    expect_same_bits(multiply(*ref, rows, *ref->pack(w, c.use), DType::kBF16).view(),
                     multiply(*ref, rows, *adopted, DType::kBF16).view(), c.text());
  }
}

}  // namespace
}  // namespace ferry

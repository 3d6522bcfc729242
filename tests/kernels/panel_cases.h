#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu/pack_panels.h"
#include "kernels/cpu/panel_layout.h"
#include "kernels/e4m3.h"
#include "kernels/matmul.h"
#include "kernels/quantize.h"
#include "runtime/base/aligned_buffer.h"

namespace ferry::test {

/// A matrix [n, k] in panels of the CPU.
struct PanelCase {
  WeightType type;
  int64_t n, k;
  WeightUse use;

  std::string text() const {
    return weight_type_name(type) + " [" + std::to_string(n) + ", " + std::to_string(k) + "]" +
           (use == WeightUse::kGated ? " gated" : "");
  }
};

inline constexpr WeightType kInt8{WeightFormat::kInt8};
constexpr WeightType int4(int32_t group_size, bool is_wide = false) { return {WeightFormat::kInt4, group_size, is_wide}; }
constexpr WeightType e4m3(int32_t group_size) { return {WeightFormat::kE4M3, group_size}; }

/// Codes, scales and zero points of every value that the type has.
inline QuantizedMatrix random_codes(const PanelCase& c) {
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

inline AlignedBuffer pack(const QuantizedMatrix& w, WeightUse use) {
  const PanelColumns columns{w.n, use == WeightUse::kGated};
  AlignedBuffer panels(static_cast<std::size_t>(columns.num_panels() * panel_bytes(w.type, w.k)));
  std::memset(panels.data(), 0, panels.size());
  pack_panels(w, columns, panels.data());
  return panels;
}

inline std::span<const std::byte> bytes_of(const AlignedBuffer& panels, const QuantizedMatrix& w, WeightUse use) {
  const PanelColumns columns{w.n, use == WeightUse::kGated};
  return {panels.data(), static_cast<std::size_t>(columns.num_panels() * panel_bytes(w.type, w.k))};
}

/// Every type, gated and not, with shapes that fill panels and groups and such that do not.
inline std::vector<PanelCase> all_panel_cases() {
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

}  // namespace ferry::test

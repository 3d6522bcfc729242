#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/weight_format.h"

// How the own kernels hold a weight matrix W [n, k]. One layout a format, whatever the instruction set: a file of packed
// weights serves every processor.
//
// Columns of the product (rows of W) come in panels of 32, two halves of 16. A panel is one forward stream of lines of 64
// bytes; a line holds one 32-bit word for each column of a half, and lines alternate between the halves:
//
//   format   a word holds           k is padded to   behind the lines of a panel
//   f32      1 element              1
//   bf16     2 elements             32               (16 lines of a half make an AMX tile)
//   int8     4 codes                64               32 scales f32
//   int4     2 x 4 codes            64               (groups, see below)
//
// A line of int4 is two lines of four codes folded: low nibbles hold the first, high nibbles the second. A group's lines are
// followed by one line of group words, u16 for each of the 32 columns: 8 bits exponent and 4 bits mantissa of the scale, 4 bits
// zero point. Padding is zeros: columns behind the last, k behind the last, groups of scale zero.
//
// In a gated matrix, gate rows above up rows, half 0 of a panel holds gates and half 1 the matching ups, 16 of each.

namespace ferry {

inline constexpr int64_t kHalfCols = 16;
inline constexpr int64_t kPanelCols = 2 * kHalfCols;
inline constexpr int64_t kLineBytes = 64;

/// k as the panel holds it, padding included.
constexpr int64_t padded_k(WeightFormat format, int64_t k) {
  const int64_t step = format == WeightFormat::kF32 ? 1 : format == WeightFormat::kBF16 ? 32 : kRowAlignment;
  return (k + step - 1) / step * step;
}

/// Bytes that one group of `group_size` elements takes in an int4 panel: its codes and its line of group words.
constexpr int64_t int4_group_bytes(int64_t group_size) { return group_size * kPanelCols / 2 + kLineBytes; }

constexpr int64_t panel_bytes(WeightType type, int64_t k) {
  const int64_t elements = padded_k(type.format, k) * kPanelCols;
  switch (type.format) {
    case WeightFormat::kF32: return (elements * 4 + kLineBytes - 1) / kLineBytes * kLineBytes;
    case WeightFormat::kBF16: return elements * 2;
    case WeightFormat::kInt8: return elements + kPanelCols * 4;
    case WeightFormat::kInt4: return padded_k(type.format, k) / type.group_size * int4_group_bytes(type.group_size);
  }
  return 0;
}

/// Which rows of W a panel holds.
struct PanelColumns {
  int64_t n;      // rows of W
  bool is_gated;  // rows 0 ‥ n/2-1 are gates, the rest their ups
  int64_t num_panels() const { return is_gated ? (n / 2 + kHalfCols - 1) / kHalfCols : (n + kPanelCols - 1) / kPanelCols; }
  /// The row of W in `lane` of a half, or -1 for padding.
  int64_t row_of(int64_t panel, int64_t half, int64_t lane) const {
    if (!is_gated) {
      const int64_t row = panel * kPanelCols + half * kHalfCols + lane;
      return row < n ? row : -1;
    }
    const int64_t pair = panel * kHalfCols + lane;
    return pair < n / 2 ? half * (n / 2) + pair : -1;
  }
};

/// A group word of int4 panels.
constexpr uint16_t make_group_word(uint32_t scale_bits, uint32_t zero_point) {
  return static_cast<uint16_t>((scale_bits >> 19 << 4) | zero_point);
}

}  // namespace ferry

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
//   e4m3     4 codes                32               (groups, see below)
//
// A line of int4 is two lines of four codes folded: low nibbles hold the first, high nibbles the second. A group's lines are
// followed by one line of group words, u16 for each of the 32 columns: 8 bits exponent and 4 bits mantissa of the scale, 4 bits
// zero point. Wide group words are u32 in two lines: the upper 28 bits of the scale as f32, 4 bits zero point.
//
// A group of e4m3 ends in two lines of 32 scales f32; the last group holds what is left of k. A word's bytes are the codes k,
// k + 2, k + 1, k + 3: even and odd bytes then widen to the two pairs of a bf16 panel.
//
// Padding is zeros: columns behind the last, k behind the last, groups of scale zero.
//
// In a gated matrix, gate rows above up rows, half 0 of a panel holds gates and half 1 the matching ups, 16 of each.

namespace ferry {

inline constexpr int64_t kHalfCols = 16;
inline constexpr int64_t kPanelCols = 2 * kHalfCols;
inline constexpr int64_t kLineBytes = 64;

/// k as the panel holds it, padding included.
constexpr int64_t padded_k(WeightFormat format, int64_t k) {
  const bool has_pairs = format == WeightFormat::kBF16 || format == WeightFormat::kE4M3;
  const int64_t step = format == WeightFormat::kF32 ? 1 : has_pairs ? 32 : kRowAlignment;
  return (k + step - 1) / step * step;
}

/// Bytes of the words behind a group's lines of codes.
constexpr int64_t group_word_bytes(WeightType type) {
  return type.is_wide || type.format == WeightFormat::kE4M3 ? 2 * kLineBytes : kLineBytes;
}
/// Bytes that a whole group takes in an int4 or e4m3 panel: its codes and their words.
constexpr int64_t group_bytes(WeightType type) {
  return type.group_size * kPanelCols / (type.format == WeightFormat::kInt4 ? 2 : 1) + group_word_bytes(type);
}

constexpr int64_t panel_bytes(WeightType type, int64_t k) {
  const int64_t elements = padded_k(type.format, k) * kPanelCols;
  switch (type.format) {
    case WeightFormat::kF32: return (elements * 4 + kLineBytes - 1) / kLineBytes * kLineBytes;
    case WeightFormat::kBF16: return elements * 2;
    case WeightFormat::kInt8: return elements + kPanelCols * 4;
    case WeightFormat::kInt4: return padded_k(type.format, k) / type.group_size * group_bytes(type);
    case WeightFormat::kE4M3: return elements + (k + type.group_size - 1) / type.group_size * group_word_bytes(type);
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
constexpr uint32_t make_wide_group_word(uint32_t scale_bits, uint32_t zero_point) { return (scale_bits & ~0xfU) | zero_point; }

}  // namespace ferry

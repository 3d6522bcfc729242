#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/finish_tile.h"
#include "kernels/cpu/panel_passes.h"
#include "kernels/cpu/row_tiles.h"
#include "kernels/cpu/scratch.h"

// What the kernels of integer products share.
//
// Codes of weights have no sign: w = scale * (code - zero point). So
//   sum_k x w = scale * (sum_k x code - zero point * sum_k x),
// and a kernel needs the sums of a row's codes: over all of k (int8) or over each group (int4).
//
// int4, for each group in ascending order: sum = fma(scale, float(dot) - zero * float(x_sum), sum). The difference is exact:
// its terms are integers below 2^24.

namespace ferry::FERRY_ISA_NAMESPACE {

inline constexpr int32_t kInt8Zero = 128;  // zero point of int8 codes

/// A tile of rows against one panel.
struct IntegerTile {
  TileRows x;             // [rows, k] int8
  const float* x_scales;  // [rows]
  const int32_t* x_sums;  // [rows, k / group_size]
  const std::byte* panel;
  int64_t k;           // padded
  int64_t group_size;  // of int8: k
  float* sums;         // [rows, 32], written

  int64_t num_groups() const { return k / group_size; }
};

/// Sums of `count` codes; exact.
[[gnu::always_inline]] inline int32_t sum_codes(const std::byte* x, int64_t count) {
  int32_t sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<int8_t>(x[i]);
  return sum;
}

/// Calls run(rows, tile, fetch) for every tile of at most kTileRows rows and every panel, and finishes each. begin(row, rows,
/// slot) is called before a tile's first panel and says where its rows lie; end_pass(pass) after every pass.
template <int kTileRows, class Begin, class Run, class EndPass>
[[gnu::always_inline]] inline void for_each_integer_tile(const MatmulBlock& block, Begin begin, Run run, EndPass end_pass) {
  const int64_t k = padded_k(block.type.format, block.k);
  const int64_t group_size = block.type.format == WeightFormat::kInt4 ? block.type.group_size : k;
  const int64_t num_groups = k / group_size, slot_sums = kTileRows * num_groups;
  alignas(64) float sums[kTileRows * kPanelCols];
  TileRows x[kTurnTiles];
  auto* x_sums = reinterpret_cast<int32_t*>(thread_scratch(kTurnTiles * slot_sums));
  const auto begin_tile = [&](int64_t row, int64_t rows, int64_t slot) {
    const std::byte* from = block.x + row * block.x_stride;
    for (int64_t i = 0; i < rows * num_groups; ++i) {
      x_sums[slot * slot_sums + i] =
          sum_codes(from + i / num_groups * block.x_stride + i % num_groups * group_size, group_size);
    }
    x[slot] = begin(row, rows, slot);
  };
  for_each_pass<kTileRows>(
      block, begin_tile, [&](const PanelPass& pass, auto fetch) __attribute__((always_inline)) {
        const IntegerTile tile{
            x[pass.slot], block.x_scales + pass.first_row, x_sums + pass.slot * slot_sums, pass.lines, k, group_size, sums};
        run(pass.num_rows, tile, fetch);
        finish_tile(block, {sums, kPanelCols, pass.first_row, pass.num_rows, pass.panel});
        end_pass(pass);
      });
}
template <int kTileRows, class Run>
[[gnu::always_inline]] inline void for_each_integer_tile(const MatmulBlock& block, Run run) {
  const auto begin = [&](int64_t row, int64_t, int64_t) { return TileRows{block.x + row * block.x_stride, block.x_stride}; };
  for_each_integer_tile<kTileRows>(block, begin, run, [](const PanelPass&) {});
}

[[gnu::always_inline]] inline F32x16 to_float(I32x16 x) {
  return detail::map<F32x16>([](RegI32 v) { return __builtin_convertvector(v, RegF32); }, x);
}

/// The products of one half of an int8 panel: scaled by column, then by row.
[[gnu::always_inline]] inline F32x16 scale_int8(I32x16 dot, const std::byte* column_scales, float x_scale) {
  const F32x16 by_column = to_float(dot) * load(reinterpret_cast<const float*>(column_scales));
  return rounded<float>(rounded<float>(by_column) * x_scale);
}

struct GroupWords {
  F32x16 scale;
  F32x16 zero_point;
};

/// Reads the group words of one half: 16 u32.
[[gnu::always_inline]] inline GroupWords load_wide_group_words(const std::byte* words) {
  GroupWords out;
  for (int i = 0; i < kParts; ++i) {
    RegU32 word;
    std::memcpy(&word, words + i * static_cast<int64_t>(sizeof(word)), sizeof(word));
    out.scale.part[i] = reinterpret_cast<RegF32>(word & ~0xfU);
    out.zero_point.part[i] = __builtin_convertvector(reinterpret_cast<RegI32>(word & 0xfU), RegF32);
  }
  return out;
}

/// Bytes behind a group's codes in a wide panel and in one that is not.
template <bool kWide>
inline constexpr int64_t kGroupWordBytes = group_word_bytes({WeightFormat::kInt4, 0, kWide});

/// Those of half `half` of a panel: u16 or, in a wide panel, u32.
template <bool kWide>
[[gnu::always_inline]] inline GroupWords load_group_words(const std::byte* line, int64_t half) {
  if constexpr (kWide) return load_wide_group_words(line + half * kLineBytes);
  const std::byte* words = line + half * kHalfCols * 2;
  GroupWords out;
  for (int i = 0; i < kParts; ++i) {
    const RegU32 word = detail::load_widened(reinterpret_cast<const bfloat16*>(words) + i * kRegisterLanes);
    out.scale.part[i] = reinterpret_cast<RegF32>((word & 0xfff0U) << 15);
    out.zero_point.part[i] = __builtin_convertvector(reinterpret_cast<RegI32>(word & 0xfU), RegF32);
  }
  return out;
}

[[gnu::always_inline]] inline F32x16 add_group(F32x16 sum, I32x16 dot, const GroupWords& words, float x_sum) {
  const F32x16 centred = fma(-words.zero_point, F32x16(x_sum), to_float(dot));
  return fma(words.scale, centred, sum);
}

}  // namespace ferry::FERRY_ISA_NAMESPACE

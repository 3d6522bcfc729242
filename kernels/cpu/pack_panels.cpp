#include "kernels/cpu/pack_panels.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace ferry {
namespace {

constexpr int64_t kPieceBytes = 64;  // of a row of W at a time: a cache line of each of 16 rows

/// Calls fn(half, lane, row) for the columns of a panel that are not padding.
template <class Fn>
void for_each_column(const PanelColumns& columns, int64_t panel, Fn fn) {
  for (int64_t half = 0; half < 2; ++half) {
    for (int64_t lane = 0; lane < kHalfCols; ++lane) {
      const int64_t row = columns.row_of(panel, half, lane);
      if (row >= 0) fn(half, lane, row);
    }
  }
}

/// A half's words of one piece of k: rows of up to 16 words become lines.
void write_lines(const uint32_t (&words)[kHalfCols][kPieceBytes / 4], int64_t num_words, std::byte* first_line) {
  for (int64_t w = 0; w < num_words; ++w) {
    uint32_t line[kHalfCols];
    for (int64_t lane = 0; lane < kHalfCols; ++lane) line[lane] = words[lane][w];
    std::memcpy(first_line + w * 2 * kLineBytes, line, sizeof(line));
  }
}

/// Elements of T are copied as they lie: 4 / sizeof(T) of them make a word.
template <class T>
void pack_words(int64_t k, const PanelColumns& columns, int64_t panel, std::byte* to, const auto& row_data) {
  constexpr int64_t kPieceElements = kPieceBytes / static_cast<int64_t>(sizeof(T));
  constexpr int64_t kWordElements = 4 / static_cast<int64_t>(sizeof(T));
  for (int64_t first = 0; first < k; first += kPieceElements) {
    const int64_t count = std::min(kPieceElements, k - first);
    for (int64_t half = 0; half < 2; ++half) {
      uint32_t words[kHalfCols][kPieceBytes / 4] = {};
      for (int64_t lane = 0; lane < kHalfCols; ++lane) {
        const int64_t row = columns.row_of(panel, half, lane);
        if (row >= 0) std::memcpy(words[lane], row_data(row) + first, static_cast<std::size_t>(count) * sizeof(T));
      }
      write_lines(words, (count + kWordElements - 1) / kWordElements, to + (first / kWordElements * 2 + half) * kLineBytes);
    }
  }
}

void pack_int8_panel(const QuantizedMatrix& w, const PanelColumns& columns, int64_t panel, std::byte* to) {
  pack_words<uint8_t>(w.k, columns, panel, to, [&](int64_t row) { return w.codes.data() + row * w.k; });
  auto* scales = reinterpret_cast<float*>(to + padded_k(WeightFormat::kInt8, w.k) * kPanelCols);
  for_each_column(columns, panel, [&](int64_t half, int64_t lane, int64_t row) {
    scales[half * kHalfCols + lane] = w.scales[static_cast<std::size_t>(row)];
  });
}

/// Four codes and the four behind them, folded into one word of nibbles.
uint32_t fold_codes(const uint8_t* codes) {
  uint32_t first, second;
  std::memcpy(&first, codes, 4);
  std::memcpy(&second, codes + 4, 4);
  return first | second << 4;
}

void write_group_word(WeightType type, float scale, uint8_t zero_point, int64_t col, std::byte* words) {
  const auto scale_bits = std::bit_cast<uint32_t>(scale);
  if (type.is_wide) {
    const uint32_t word = make_wide_group_word(scale_bits, zero_point);
    std::memcpy(words + col * 4, &word, sizeof(word));
  } else {
    const uint16_t word = make_group_word(scale_bits, zero_point);
    std::memcpy(words + col * 2, &word, sizeof(word));
  }
}

void pack_int4_panel(const QuantizedMatrix& w, const PanelColumns& columns, int64_t panel, std::byte* to) {
  for_each_column(columns, panel, [&](int64_t half, int64_t lane, int64_t row) {
    for (int64_t g = 0; g < w.num_groups(); ++g) {
      std::byte* group = to + g * group_bytes(w.type);
      const uint8_t* codes = w.codes.data() + row * w.k + g * w.group;
      for (int64_t k = 0; k < w.group; k += 8) {
        const uint32_t word = fold_codes(codes + k);
        std::memcpy(group + (k / 8 * 2 + half) * kLineBytes + lane * 4, &word, sizeof(word));
      }
      const auto at = static_cast<std::size_t>(row * w.num_groups() + g);
      write_group_word(w.type, w.scales[at], w.zero_points[at], half * kHalfCols + lane, group + w.group * kPanelCols / 2);
    }
  });
}

/// Four codes in the order in which their even and odd bytes are pairs; behind the last, zeros.
uint32_t pair_codes(const uint8_t* codes, int64_t count) {
  uint32_t word = 0;
  constexpr int kPlace[4] = {0, 2, 1, 3};  // of the codes k, k + 1, k + 2, k + 3
  for (int64_t i = 0; i < std::min<int64_t>(count, 4); ++i) word |= uint32_t{codes[i]} << (8 * kPlace[i]);
  return word;
}

void pack_e4m3_panel(const QuantizedMatrix& w, const PanelColumns& columns, int64_t panel, std::byte* to) {
  for_each_column(columns, panel, [&](int64_t half, int64_t lane, int64_t row) {
    for (int64_t g = 0; g < w.num_groups(); ++g) {
      std::byte* group = to + g * group_bytes(w.type);
      const int64_t first = g * w.group, count = std::min(w.group, w.k - first);
      const uint8_t* codes = w.codes.data() + row * w.k + first;
      for (int64_t k = 0; k < count; k += 4) {
        const uint32_t word = pair_codes(codes + k, count - k);
        std::memcpy(group + (k / 4 * 2 + half) * kLineBytes + lane * 4, &word, sizeof(word));
      }
      const float scale = w.scales[static_cast<std::size_t>(row * w.num_groups() + g)];
      std::byte* scales = group + padded_k(w.type.format, count) * kPanelCols;
      std::memcpy(scales + (half * kHalfCols + lane) * 4, &scale, sizeof(scale));
    }
  });
}

/// Calls pack(panel_idx) for every panel.
void for_each_panel(int64_t num_panels, ThreadPool* pool, TaskRef pack) {
  if (pool != nullptr) return pool->parallel_for(num_panels, pack);
  for (int64_t p = 0; p < num_panels; ++p) pack(p, 0);
}

}  // namespace

void pack_panels(ConstMatrixView weights, const PanelColumns& columns, std::byte* to, ThreadPool* pool) {
  const int64_t stride = panel_bytes(plain_weights(weights.dtype), weights.cols);
  visit_dtype(weights.dtype, [&]<class T>() {
    for_each_panel(columns.num_panels(), pool, [&](int64_t p, int) {
      pack_words<T>(weights.cols, columns, p, to + p * stride, [&](int64_t row) { return weights.row<T>(row); });
    });
  });
}

void pack_panels(const QuantizedMatrix& weights, const PanelColumns& columns, std::byte* to, ThreadPool* pool) {
  const int64_t stride = panel_bytes(weights.type, weights.k);
  for_each_panel(columns.num_panels(), pool, [&](int64_t p, int) {
    switch (weights.type.format) {
      case WeightFormat::kInt4: return pack_int4_panel(weights, columns, p, to + p * stride);
      case WeightFormat::kE4M3: return pack_e4m3_panel(weights, columns, p, to + p * stride);
      default: return pack_int8_panel(weights, columns, p, to + p * stride);
    }
  });
}

}  // namespace ferry

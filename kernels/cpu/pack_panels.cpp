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

void pack_int4_panel(const QuantizedMatrix& w, const PanelColumns& columns, int64_t panel, std::byte* to) {
  for_each_column(columns, panel, [&](int64_t half, int64_t lane, int64_t row) {
    for (int64_t g = 0; g < w.num_groups(); ++g) {
      std::byte* group = to + g * int4_group_bytes(w.group);
      const uint8_t* codes = w.codes.data() + row * w.k + g * w.group;
      for (int64_t k = 0; k < w.group; k += 8) {
        const uint32_t word = fold_codes(codes + k);
        std::memcpy(group + (k / 8 * 2 + half) * kLineBytes + lane * 4, &word, sizeof(word));
      }
      const auto at = static_cast<std::size_t>(row * w.num_groups() + g);
      const uint16_t word = make_group_word(std::bit_cast<uint32_t>(w.scales[at]), w.zero_points[at]);
      std::memcpy(group + w.group * kPanelCols / 2 + (half * kHalfCols + lane) * 2, &word, sizeof(word));
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
    if (weights.type.format == WeightFormat::kInt8) {
      pack_int8_panel(weights, columns, p, to + p * stride);
    } else {
      pack_int4_panel(weights, columns, p, to + p * stride);
    }
  });
}

}  // namespace ferry

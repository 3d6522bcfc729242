#include "kernels/cpu/unpack_panels.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/cpu/panel_layout.h"
#include "runtime/base/check.h"

namespace ferry {
namespace {

constexpr uint8_t kInt8Zero = 128;
constexpr int64_t kWordBytes = 4;

/// The `at`-th T of those at `from`.
template <class T>
T load(const std::byte* from, int64_t at) {
  T value{};
  std::memcpy(&value, from + at * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

/// Where word `word` of column `col`'s codes lies behind the first line: lines alternate between the halves.
int64_t word_offset(int64_t word, int64_t col) {
  return (word * 2 + col / kHalfCols) * kLineBytes + col % kHalfCols * kWordBytes;
}

/// One column of a panel, row `row` of the matrix.
struct Column {
  const std::byte* panel;
  int64_t col;  // 0 ‥ kPanelCols-1
  int64_t row;
};

void unpack_int8(const Column& from, QuantizedMatrix& w) {
  uint8_t* codes = w.codes.data() + from.row * w.k;
  for (int64_t k = 0; k < w.k; k += kWordBytes) {
    const auto count = static_cast<std::size_t>(std::min(kWordBytes, w.k - k));
    std::memcpy(codes + k, from.panel + word_offset(k / kWordBytes, from.col), count);
  }
  const std::byte* scales = from.panel + padded_k(WeightFormat::kInt8, w.k) * kPanelCols;
  w.scales[static_cast<std::size_t>(from.row)] = load<float>(scales, from.col);
  w.zero_points[static_cast<std::size_t>(from.row)] = kInt8Zero;
}

/// Scale and zero point of a group of int4.
void unpack_group_word(const std::byte* words, const Column& from, std::size_t at, QuantizedMatrix& w) {
  uint32_t scale_bits = 0;
  if (w.type.is_wide) {
    const auto word = load<uint32_t>(words, from.col);
    scale_bits = word & ~0xFU;
    w.zero_points[at] = static_cast<uint8_t>(word & 0xFU);
  } else {
    const auto word = load<uint16_t>(words, from.col);
    scale_bits = static_cast<uint32_t>(word >> 4) << 19;
    w.zero_points[at] = static_cast<uint8_t>(word & 0xFU);
  }
  w.scales[at] = std::bit_cast<float>(scale_bits);
}

void unpack_int4(const Column& from, QuantizedMatrix& w) {
  for (int64_t g = 0; g < w.num_groups(); ++g) {
    const std::byte* group = from.panel + g * group_bytes(w.type);
    uint8_t* codes = w.codes.data() + from.row * w.k + g * w.group;
    for (int64_t k = 0; k < w.group; k += 2 * kWordBytes) {
      const auto folded = load<uint32_t>(group + word_offset(k / (2 * kWordBytes), from.col), 0);
      const uint32_t first = folded & 0x0F0F0F0FU, second = folded >> 4 & 0x0F0F0F0FU;
      std::memcpy(codes + k, &first, kWordBytes);
      std::memcpy(codes + k + kWordBytes, &second, kWordBytes);
    }
    const auto at = static_cast<std::size_t>(from.row * w.num_groups() + g);
    unpack_group_word(group + w.group * kPanelCols / 2, from, at, w);
  }
}

void unpack_e4m3(const Column& from, QuantizedMatrix& w) {
  constexpr int64_t kPlace[kWordBytes] = {0, 2, 1, 3};  // in a word, of the codes k, k + 1, k + 2, k + 3
  for (int64_t g = 0; g < w.num_groups(); ++g) {
    const std::byte* group = from.panel + g * group_bytes(w.type);
    const int64_t first = g * w.group, count = std::min(w.group, w.k - first);
    uint8_t* codes = w.codes.data() + from.row * w.k + first;
    for (int64_t k = 0; k < count; ++k)
      codes[k] = load<uint8_t>(group + word_offset(k / kWordBytes, from.col), kPlace[k % kWordBytes]);
    const std::byte* scales = group + padded_k(w.type.format, count) * kPanelCols;
    w.scales[static_cast<std::size_t>(from.row * w.num_groups() + g)] = load<float>(scales, from.col);
  }
}

/// An empty matrix of that shape.
QuantizedMatrix make_matrix(int64_t n, int64_t k, WeightType type) {
  QuantizedMatrix w{.type = type, .n = n, .k = k, .group = type.format == WeightFormat::kInt8 ? k : type.group_size};
  const auto num_groups = static_cast<std::size_t>(n * w.num_groups());
  w.codes.resize(static_cast<std::size_t>(n * k));
  w.scales.resize(num_groups);
  if (type.is_integer()) w.zero_points.resize(num_groups);
  return w;
}

}  // namespace

QuantizedMatrix unpack_panels(int64_t n, int64_t k, WeightType type, WeightUse use, std::span<const std::byte> panels,
                              ThreadPool* pool) {
  FERRY_CHECK(type.is_integer() || type.format == WeightFormat::kE4M3) << " panels of plain weights hold no codes";
  const PanelColumns columns{n, use == WeightUse::kGated};
  const int64_t stride = panel_bytes(type, k);
  FERRY_CHECK_EQ(static_cast<int64_t>(panels.size()), columns.num_panels() * stride);
  QuantizedMatrix w = make_matrix(n, k, type);
  const auto unpack = [&](int64_t panel, int) {
    for (int64_t col = 0; col < kPanelCols; ++col) {
      const Column from{panels.data() + panel * stride, col, columns.row_of(panel, col / kHalfCols, col % kHalfCols)};
      if (from.row < 0) continue;
      switch (type.format) {
        case WeightFormat::kInt4: unpack_int4(from, w); break;
        case WeightFormat::kE4M3: unpack_e4m3(from, w); break;
        default: unpack_int8(from, w);
      }
    }
  };
  if (pool != nullptr) {
    pool->parallel_for(columns.num_panels(), unpack);
  } else {
    for (int64_t p = 0; p < columns.num_panels(); ++p) unpack(p, 0);
  }
  return w;
}

}  // namespace ferry

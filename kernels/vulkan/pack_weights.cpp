#include "kernels/vulkan/pack_weights.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>

#include "kernels/cpu/panel_layout.h"
#include "runtime/base/check.h"

namespace ferry::vulkan {
namespace {

constexpr int64_t kPieceBytes = int64_t{16} << 20;  // that are packed before they are handed on

using TileRow = std::array<uint8_t, kTileRowBytes>;

/// 64 codes of int4 or fewer, two a byte.
TileRow fold_codes(const uint8_t* codes, int64_t count) {
  TileRow row{};
  for (int64_t i = 0; i < count; ++i) {
    const auto byte = static_cast<std::size_t>(i / 8 * 4 + i % 4);
    row[byte] = static_cast<uint8_t>(row[byte] | (i % 8 < 4 ? codes[i] : codes[i] << 4));
  }
  return row;
}

/// A tile's row of W's row that begins at `row`, whose elements take `element_bytes` (int4: a byte).
TileRow pack_row(const PackedLayout& layout, const std::byte* row, int64_t element_bytes, int64_t tile) {
  const int64_t width = tile_k(layout.type.format), first = tile * width, count = std::min(width, layout.k - first);
  const auto* from = reinterpret_cast<const uint8_t*>(row) + first * element_bytes;
  if (layout.type.format == WeightFormat::kInt4) return fold_codes(from, count);
  TileRow packed{};
  std::memcpy(packed.data(), from, static_cast<std::size_t>(count * element_bytes));
  if (layout.type.format == WeightFormat::kInt8) {
    for (int64_t i = 0; i < count; ++i) packed[static_cast<std::size_t>(i)] ^= 0x80;
  }
  return packed;
}

/// `row_data(r)` is where W's row r begins.
template <class RowData>
void pack_panel(const PackedLayout& layout, int64_t panel, int64_t element_bytes, std::byte* to, const RowData& row_data) {
  const std::byte* rows[kPanelRows];
  for (int64_t lane = 0; lane < kPanelRows; ++lane) {
    const int64_t row = layout.row_of(panel, lane);
    rows[lane] = row < 0 ? nullptr : row_data(row);
  }
  for (int64_t tile = 0; tile < layout.num_tiles(); ++tile) {
    for (const std::byte* row : rows) {
      const TileRow packed = row == nullptr ? TileRow{} : pack_row(layout, row, element_bytes, tile);
      std::memcpy(to, packed.data(), packed.size());
      to += packed.size();
    }
  }
}

uint32_t make_word(const QuantizedMatrix& weights, int64_t row, int64_t group) {
  const auto at = static_cast<std::size_t>(row * weights.num_groups() + group);
  const auto scale = std::bit_cast<uint32_t>(weights.scales[at]);
  if (weights.type.format != WeightFormat::kInt4) return scale;
  return weights.type.is_wide ? make_wide_group_word(scale, weights.zero_points[at])
                              : make_group_word(scale, weights.zero_points[at]);
}

/// The words of a panel's groups.
void pack_words(const QuantizedMatrix& weights, const PackedLayout& layout, int64_t panel, std::byte* to) {
  const auto word_bytes = static_cast<std::size_t>(layout.group_word_bytes());
  for (int64_t group = 0; group < layout.num_groups(); ++group) {
    for (int64_t lane = 0; lane < kPanelRows; ++lane) {
      const int64_t row = layout.row_of(panel, lane);
      const uint32_t word = row < 0 ? 0 : make_word(weights, row, group);
      std::memcpy(to, &word, word_bytes);  // of a narrow one the lower half
      to += word_bytes;
    }
  }
}

/// Calls pack(panel, to) for all panels, which take `bytes` each from `offset` on.
template <class Pack>
void pack_pieces(int64_t num_panels, int64_t bytes, int64_t offset, ThreadPool* pool, const PackedSink& sink,
                 const Pack& pack) {
  if (bytes == 0) return;
  const int64_t piece_panels = std::clamp<int64_t>(kPieceBytes / bytes, 1, num_panels);
  const auto piece = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(piece_panels * bytes));
  for (int64_t first = 0; first < num_panels; first += piece_panels) {
    const int64_t count = std::min(piece_panels, num_panels - first);
    const auto task = [&](int64_t i, int) { pack(first + i, piece.get() + i * bytes); };
    if (pool != nullptr) {
      pool->parallel_for(count, task);
    } else {
      for (int64_t i = 0; i < count; ++i) task(i, 0);
    }
    sink(offset + first * bytes, {piece.get(), static_cast<std::size_t>(count * bytes)});
  }
}

}  // namespace

int64_t PackedLayout::num_panels() const {
  const int64_t pair_rows = is_gated ? kPanelRows : 2 * kPanelRows, rows = is_gated ? n / 2 : n;
  return (rows + pair_rows - 1) / pair_rows * 2;
}

int64_t PackedLayout::row_of(int64_t panel, int64_t lane) const {
  if (!is_gated) {
    const int64_t row = panel * kPanelRows + lane;
    return row < n ? row : -1;
  }
  const int64_t row = panel / 2 * kPanelRows + lane;
  return row < n / 2 ? panel % 2 * (n / 2) + row : -1;
}

int64_t PackedLayout::num_groups() const {
  if (type.format == WeightFormat::kInt8) return 1;
  return type.group_size == 0 ? 0 : (k + type.group_size - 1) / type.group_size;
}

int64_t PackedLayout::group_word_bytes() const {
  if (num_groups() == 0) return 0;
  return type.format == WeightFormat::kInt4 && !type.is_wide ? 2 : 4;
}

void pack_weights(ConstMatrixView weights, const PackedLayout& layout, ThreadPool* pool, const PackedSink& sink) {
  pack_pieces(layout.num_panels(), layout.panel_bytes(), 0, pool, sink, [&](int64_t panel, std::byte* to) {
    pack_panel(layout, panel, dtype_bytes(weights.dtype), to, [&](int64_t row) { return weights.row_bytes(row); });
  });
}

void pack_weights(const QuantizedMatrix& weights, const PackedLayout& layout, ThreadPool* pool, const PackedSink& sink) {
  const int64_t words_offset = layout.num_panels() * layout.panel_bytes();
  pack_pieces(layout.num_panels(), layout.panel_bytes(), 0, pool, sink, [&](int64_t panel, std::byte* to) {
    pack_panel(layout, panel, 1, to,
               [&](int64_t row) { return reinterpret_cast<const std::byte*>(weights.codes.data() + row * weights.k); });
  });
  pack_pieces(layout.num_panels(), layout.words_bytes(), words_offset, pool, sink,
              [&](int64_t panel, std::byte* to) { pack_words(weights, layout, panel, to); });
}

}  // namespace ferry::vulkan

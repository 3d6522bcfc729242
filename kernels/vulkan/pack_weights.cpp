#include "kernels/vulkan/pack_weights.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "kernels/cpu/panel_layout.h"
#include "runtime/base/check.h"

namespace ferry::vulkan {
namespace {

constexpr int64_t kPieceBytes = int64_t{4} << 20;  // of room at once, if a panel does not take more

using TileRow = std::array<uint8_t, kTileRowBytes>;

/// 64 codes of int4 or fewer, a multiple of 8, two a byte.
TileRow fold_codes(const uint8_t* codes, int64_t count) {
  TileRow row{};
  for (int64_t i = 0; i < count; i += 8) {
    uint32_t first = 0, second = 0;
    std::memcpy(&first, codes + i, sizeof first);
    std::memcpy(&second, codes + i + 4, sizeof second);
    const uint32_t word = first | second << 4;
    std::memcpy(row.data() + i / 2, &word, sizeof word);
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

/// Calls pack_tiles(panel, to) and then pack_words(panel, to) for all panels, several of them at once in each piece of room.
template <class PackTiles, class PackWords>
void pack_pieces(const PackedLayout& layout, ThreadPool* pool, const PackedRoom& room, const PackTiles& pack_tiles,
                 const PackWords& pack_words) {
  const int64_t num_panels = layout.num_panels(), num_parts = layout.words_bytes() > 0 ? 2 * num_panels : num_panels;
  const auto offset_of = [&](int64_t part) {
    return std::min(part, num_panels) * layout.panel_bytes() + std::max<int64_t>(part - num_panels, 0) * layout.words_bytes();
  };
  for (int64_t first = 0, end = 0; first < num_parts; first = end) {
    const int64_t offset = offset_of(first);
    for (end = first + 1; end < num_parts && offset_of(end + 1) - offset <= kPieceBytes;) ++end;
    room(offset, offset_of(end) - offset, [&](std::byte* to) {
      const auto pack = [&](int64_t i, int) {
        const int64_t part = first + i;
        std::byte* const at = to + (offset_of(part) - offset);
        if (part < num_panels) {
          pack_tiles(part, at);
        } else {
          pack_words(part - num_panels, at);
        }
      };
      if (pool != nullptr) {
        pool->parallel_for(end - first, pack);
      } else {
        for (int64_t i = 0; i < end - first; ++i) pack(i, 0);
      }
    });
  }
}

constexpr int64_t kTileWords = kTileRowBytes / 4;  // of a row
constexpr int64_t kPairBytes = 2 * kLineBytes;     // a word of every column of the CPU's panels

int64_t codes_of_word(WeightFormat format) { return format == WeightFormat::kInt4 ? 8 : 4; }

/// Half of a panel of the CPU's, whose 16 columns are the rows of a panel.
struct HalfPanel {
  const std::byte* panel;
  int64_t half;
  const PackedLayout& layout;

  const std::byte* line(int64_t offset) const { return panel + offset + half * kLineBytes; }
};

/// Copies the lines of up to `num_words` words of codes from word `first` on.
void gather_lines(const HalfPanel& from, int64_t first, int64_t num_words, uint32_t (&lines)[kTileWords][kPanelRows]) {
  const WeightType type = from.layout.type;
  const bool is_int8 = type.format == WeightFormat::kInt8;  // whose lines no groups part
  const int64_t group_words = is_int8 ? INT64_MAX : type.group_size / codes_of_word(type.format);
  int64_t group = first / group_words, word = first % group_words;
  for (int64_t i = 0; i < num_words; ++i) {
    const int64_t group_offset = group == 0 ? 0 : group * group_bytes(type);
    std::memcpy(lines[i], from.line(group_offset + word * kPairBytes), sizeof lines[i]);
    if (++word < group_words) continue;
    word = 0;
    ++group;
  }
}

/// The codes of a word as a tile holds them, of which `num_codes` are there.
uint32_t tile_word(WeightFormat format, uint32_t word, int64_t num_codes) {
  if (format == WeightFormat::kE4M3) return (word & 0xFF0000FFU) | (word >> 8 & 0xFF00U) | (word << 8 & 0xFF0000U);
  if (format == WeightFormat::kInt8) return (word ^ 0x80808080U) & ~uint32_t{0} >> (8 * (4 - std::min<int64_t>(num_codes, 4)));
  return word;
}

template <WeightFormat kFormat>
void turn_tile(const HalfPanel& from, int64_t tile, int64_t num_rows, std::byte* to) {
  const int64_t word_codes = codes_of_word(kFormat), num_codes = from.layout.k - tile * tile_k(kFormat);
  const int64_t num_words = std::min(kTileWords, (num_codes + word_codes - 1) / word_codes);
  uint32_t lines[kTileWords][kPanelRows], rows[kPanelRows][kTileWords] = {};
  gather_lines(from, tile * kTileWords, num_words, lines);
  for (int64_t w = 0; w < num_words; ++w) {
    for (int64_t row = 0; row < num_rows; ++row) rows[row][w] = tile_word(kFormat, lines[w][row], num_codes - w * word_codes);
  }
  std::memcpy(to, rows, sizeof rows);
}

/// Of a panel; a row that is not there is zeros.
template <WeightFormat kFormat>
void turn_tiles(const HalfPanel& from, int64_t num_rows, std::byte* to) {
  for (int64_t tile = 0; tile < from.layout.num_tiles(); ++tile)
    turn_tile<kFormat>(from, tile, num_rows, to + tile * kTileBytes);
}

/// Where a panel of the CPU's has the words of a group.
int64_t words_offset(const PackedLayout& layout, int64_t group) {
  const WeightType type = layout.type;
  if (type.format == WeightFormat::kInt8) return padded_k(type.format, layout.k) * kPanelCols;
  const int64_t begin = group * group_bytes(type),
                count = std::min<int64_t>(type.group_size, layout.k - group * type.group_size);
  return begin + (type.format == WeightFormat::kInt4 ? count / 2 : padded_k(type.format, count)) * kPanelCols;
}

/// The words of a panel's groups, which are the same in both.
void copy_words(const HalfPanel& from, std::byte* to) {
  const int64_t bytes = kPanelRows * from.layout.group_word_bytes();
  for (int64_t group = 0; group < from.layout.num_groups(); ++group, to += bytes)
    std::memcpy(to, from.panel + words_offset(from.layout, group) + from.half * bytes, static_cast<std::size_t>(bytes));
}

int64_t count_rows(const PackedLayout& layout, int64_t panel) {
  int64_t count = 0;
  while (count < kPanelRows && layout.row_of(panel, count) >= 0) ++count;
  return count;
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

void pack_weights(ConstMatrixView weights, const PackedLayout& layout, ThreadPool* pool, const PackedRoom& room) {
  const auto pack = [&](int64_t panel, std::byte* to) {
    pack_panel(layout, panel, dtype_bytes(weights.dtype), to, [&](int64_t row) { return weights.row_bytes(row); });
  };
  pack_pieces(layout, pool, room, pack, [](int64_t, std::byte*) {});
}

void pack_weights(const QuantizedMatrix& weights, const PackedLayout& layout, ThreadPool* pool, const PackedRoom& room) {
  const auto pack = [&](int64_t panel, std::byte* to) {
    pack_panel(layout, panel, 1, to,
               [&](int64_t row) { return reinterpret_cast<const std::byte*>(weights.codes.data() + row * weights.k); });
  };
  pack_pieces(layout, pool, room, pack, [&](int64_t panel, std::byte* to) { pack_words(weights, layout, panel, to); });
}

void repack_panels(std::span<const std::byte> panels, const PackedLayout& layout, ThreadPool* pool, const PackedRoom& room) {
  const int64_t bytes = panel_bytes(layout.type, layout.k);  // of the CPU's, each of which makes two
  FERRY_CHECK_EQ(2 * static_cast<int64_t>(panels.size()), layout.num_panels() * bytes);
  const auto turn = layout.type.format == WeightFormat::kInt8   ? turn_tiles<WeightFormat::kInt8>
                    : layout.type.format == WeightFormat::kInt4 ? turn_tiles<WeightFormat::kInt4>
                                                                : turn_tiles<WeightFormat::kE4M3>;
  const auto half_of = [&](int64_t panel) { return HalfPanel{panels.data() + panel / 2 * bytes, panel % 2, layout}; };
  pack_pieces(
      layout, pool, room, [&](int64_t panel, std::byte* to) { turn(half_of(panel), count_rows(layout, panel), to); },
      [&](int64_t panel, std::byte* to) { copy_words(half_of(panel), to); });
}

}  // namespace ferry::vulkan

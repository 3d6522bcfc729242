#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "kernels/quantize.h"
#include "kernels/tensor.h"
#include "kernels/weight_format.h"
#include "runtime/base/thread_pool.h"

// How the device holds a weight matrix W [n, k], for shaders/matmul_common.glsl.
//
// Rows of W come in panels of 16, panels in pairs. A panel is one run of tiles of 512 bytes, ascending in k; a tile holds 32
// consecutive bytes of each of the 16 rows, row after row:
//
//   format   a tile's row holds
//   f32       8 elements
//   bf16     16 elements: a 16 x 16 matrix, which tensor units load in one piece
//   int8     32 codes, signed: 128 is taken off
//   e4m3     32 codes
//   int4     64 codes: a 32-bit word has eight, the first four in the low nibbles of its bytes
//
// Behind the tiles of all panels come the words of the scale groups, 16 for each group of each panel, panel after panel:
//
//   int8     one group: scales f32
//   e4m3     scales f32
//   int4     u16: 8 bits exponent and 4 bits mantissa of the scale, 4 bits zero point; wide: u32, the upper 28 bits of the
//            scale as f32, 4 bits zero point
//
// A pair of panels holds 32 rows; of a gated matrix, gate rows above up rows, 16 gates and the 16 ups that belong to them.
// Padding, behind the last row and behind the last element of k, is zeros.

namespace ferry::vulkan {

inline constexpr int64_t kPanelRows = 16;
inline constexpr int64_t kTileRowBytes = 32;
inline constexpr int64_t kTileBytes = kPanelRows * kTileRowBytes;

/// Elements of a tile's row.
constexpr int64_t tile_k(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32: return 8;
    case WeightFormat::kBF16: return 16;
    case WeightFormat::kInt8:
    case WeightFormat::kE4M3: return 32;
    case WeightFormat::kInt4: return 64;
  }
  return 0;
}

struct PackedLayout {
  int64_t n = 0, k = 0;
  WeightType type;
  bool is_gated = false;  // n is even

  int64_t num_tiles() const { return (k + tile_k(type.format) - 1) / tile_k(type.format); }  // of a panel
  int64_t num_panels() const;
  /// The row of W in `lane` of a panel, or -1 for padding.
  int64_t row_of(int64_t panel, int64_t lane) const;
  int64_t panel_bytes() const { return num_tiles() * kTileBytes; }
  int64_t num_groups() const;                                                             // of scales
  int64_t group_word_bytes() const;                                                       // 0 without scales
  int64_t words_bytes() const { return kPanelRows * num_groups() * group_word_bytes(); }  // of a panel
  int64_t bytes() const { return num_panels() * (panel_bytes() + words_bytes()); }
  bool operator==(const PackedLayout&) const = default;
};

/// Has `write` write `size` bytes of the packed matrix, which begin at `offset`, wherever there is room for them. It writes
/// them all and reads none.
using PackedRoom = std::function<void(int64_t offset, int64_t size, const std::function<void(std::byte*)>& write)>;

/// Packs W piece by piece; the threads of `pool` share the work if there is one. Thread-safe without.
void pack_weights(ConstMatrixView weights, const PackedLayout& layout, ThreadPool* pool, const PackedRoom& room);
void pack_weights(const QuantizedMatrix& weights, const PackedLayout& layout, ThreadPool* pool, const PackedRoom& room);
/// From panels of the CPU's layout (kernels/cpu/panel_layout.h), which hold the same rows in the same words of codes, word by
/// word where these are row by row: the bytes that packing the codes of unpack_panels() gives, without making those.
void repack_panels(std::span<const std::byte> panels, const PackedLayout& layout, ThreadPool* pool, const PackedRoom& room);

}  // namespace ferry::vulkan

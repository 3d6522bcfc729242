#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/matmul_block.h"
#include "kernels/cpu/row_tiles.h"
#include "kernels/cpu/scratch.h"

namespace ferry::FERRY_ISA_NAMESPACE {

/// Copies the rows of a tile next to each other, [k / 64 bytes][kTileRows][64 bytes], so that a kernel finds them at constant
/// distances. Rows of x often lie a power of two apart and then meet in few sets of a cache: 12 rows of 4 KiB are all in one
/// set of the first level, which has 8 to 12 ways. Blocks of less than kFewPanels panels are not worth a copy, nor is a single
/// row.
template <int64_t kTileRows, int64_t kFewPanels>
class RowPacker {
 public:
  /// `num_slots`: tiles that are held at once.
  explicit RowPacker(const MatmulBlock& block, int64_t num_slots = 1)
      : block_(block),
        num_slots_(num_slots),
        row_bytes_(block.type.is_integer() ? padded_k(block.type.format, block.k) : block.k * 2),
        num_steps_((row_bytes_ + kLineBytes - 1) / kLineBytes) {}

  int64_t num_steps() const { return num_steps_; }  // of 64 bytes

  /// The rows first_row ‥ first_row + num_rows-1, zeros behind k up to a whole step; valid until the next call on this thread
  /// with the same slot.
  TileRows begin(int64_t first_row, int64_t num_rows, int64_t slot = 0) const {
    const std::byte* x = block_.x + first_row * block_.x_stride;
    const bool is_whole = row_bytes_ % kLineBytes == 0;
    if (is_whole && (num_rows == 1 || block_.num_panels < kFewPanels)) return {x, block_.x_stride, kLineBytes};
    const int64_t slot_bytes = num_steps_ * kStepBytes;
    auto* slots = reinterpret_cast<std::byte*>(thread_scratch(num_slots_ * slot_bytes / 4, Scratch::kRows));
    std::byte* packed = slots + slot * slot_bytes;
    // Step by step, so that lines are written in their order: a row's own lie 2 KiB apart, all in two sets of the first level.
    const int64_t num_whole = row_bytes_ / kLineBytes;
    for (int64_t s = 0; s < num_whole; ++s) copy_step(x + s * kLineBytes, num_rows, kLineBytes, packed + s * kStepBytes);
    if (!is_whole) {
      std::byte* last = packed + num_whole * kStepBytes;
      std::memset(last, 0, kStepBytes);
      copy_step(x + num_whole * kLineBytes, num_rows, row_bytes_ % kLineBytes, last);
    }
    return {packed, kLineBytes, kStepBytes};
  }

  /// Asks for this panel's share of the rows that follow `next_row`.
  void prefetch(int64_t next_row, int64_t panel) const {
    const int64_t left = block_.num_rows - next_row, num_rows = left < kTileRows ? left : kTileRows;
    for (int64_t r = num_rows * panel / block_.num_panels; r < num_rows * (panel + 1) / block_.num_panels; ++r) {
      const std::byte* row = block_.x + (next_row + r) * block_.x_stride;
      for (int64_t at = 0; at < row_bytes_; at += kLineBytes) __builtin_prefetch(row + at, 0, 2);
    }
  }

 private:
  static constexpr int64_t kStepBytes = kTileRows * kLineBytes;

  /// `count` bytes of every row from `from` on.
  [[gnu::always_inline]] void copy_step(const std::byte* from, int64_t num_rows, int64_t count, std::byte* to) const {
    for (int64_t r = 0; r < num_rows; ++r) {
      std::memcpy(to + r * kLineBytes, from + r * block_.x_stride, static_cast<std::size_t>(count));
    }
  }

  const MatmulBlock& block_;
  int64_t num_slots_;
  int64_t row_bytes_;
  int64_t num_steps_;
};

}  // namespace ferry::FERRY_ISA_NAMESPACE

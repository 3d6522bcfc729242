#pragma once

#include <immintrin.h>

#include <cstdint>

// What the sources for AMX share: tiles hold up to 16 rows of 64 bytes.

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

constexpr int64_t kTileSide = 16;  // rows, and words of a row

/// What _tile_loadconfig reads. Must be static: g++ 12 takes it to read 8 bytes, so a local one would not be written in full.
struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constinit const TileShapes kWholeTiles{};

/// Makes the tiles, all of them whole, this thread's.
class WholeTiles {
 public:
  WholeTiles() { _tile_loadconfig(&kWholeTiles); }
  ~WholeTiles() { _tile_release(); }
  WholeTiles(const WholeTiles&) = delete;
  WholeTiles& operator=(const WholeTiles&) = delete;
};

/// Memory that tiles read or have written: the compiler's own loads and stores must not pass.
[[gnu::always_inline]] inline void memory_barrier() { asm volatile("" ::: "memory"); }

}  // namespace
}  // namespace ferry::FERRY_ISA_NAMESPACE

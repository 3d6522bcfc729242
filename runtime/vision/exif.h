#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/vision/picture.h"

namespace ferry {

/// The bytes of the Exif block of a PNG (chunk eXIf), JPEG (segment APP1) or WebP (chunk EXIF) file, from "II" or "MM" on;
/// empty if there is none.
std::span<const std::byte> find_exif(std::span<const std::byte> file);

/// Tag 0x0112 of the first directory of an Exif block, 1 ‥ 8; 1 (upright) if there is none or the block is damaged.
int read_orientation(std::span<const std::byte> exif);

/// Turns and mirrors `picture` upright: 2 left-right, 3 half a turn, 4 top-bottom, 5 transposed, 6 a quarter clockwise,
/// 7 transposed over the other diagonal, 8 a quarter counter-clockwise (Exif 2.32, 4.6.4 A).
Picture make_upright(Picture picture, int orientation);

}  // namespace ferry

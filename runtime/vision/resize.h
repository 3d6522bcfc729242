#pragma once

#include <cstdint>
#include <functional>

#include "runtime/vision/picture.h"

namespace ferry {

/// Bicubic with antialiasing (the cubic of Keys with a = -0.5, stretched by the scale where a picture shrinks), columns
/// first, then rows, each pass rounded and clamped to 8 bits. Weights are whole numbers of 16 bits whose precision follows
/// from the largest: what torch 2.15's upsample_bicubic2d_aa gives for uint8, bit for bit
/// (aten/src/ATen/native/cpu/UpSampleKernel.cpp). Takes width x picture.height x 3 bytes beside the result.
///
/// `check_in` (if there is one) is called between rows; what it throws ends the resizing.
Picture resize_bicubic(const Picture& picture, int64_t width, int64_t height, const std::function<void()>& check_in = {});

}  // namespace ferry

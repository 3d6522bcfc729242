#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/screen_bounds.h"
#include "kernels/tensor.h"

// Codes of 8 bits for an argmax screen (argmax_screen.h), with what they are off by. Norms are rounded up.

namespace ferry {

/// Quantises a bf16 panel [32 columns, k] into an int8 one and writes its columns' |w - w^| and |w| to `column_bounds` [2][32].
/// A column that is not finite has codes of zero and infinite norms.
void screen_panel(const std::byte* bf16_panel, int64_t k, std::byte* int8_panel, float* column_bounds);

/// The largest of the finite |w| of `num_panels` panels.
float largest_norm(const float* column_bounds, int64_t num_panels);

/// A row's codes: x ~ scale * codes + rest_scale * rest_codes. A zero scale has zero codes.
struct ScreenCodes {
  int8_t* codes;  // [quantized_cols(k)]
  float* scale;
};

/// What is known of a row behind its codes.
struct ScreenedRow {
  bool is_screened = false;  // false: its bounds would be no numbers; then it has no codes
  double norm = 0;           // |x|
  double rest = 0;           // |x - x^| with the first codes
  ScreenRow bounds;
};

/// Quantises x [k], with `rest` also what the codes leave. `largest_column` is the largest |w|.
ScreenedRow screen_row(const bfloat16* x, int64_t k, float largest_column, const ScreenCodes& first, const ScreenCodes* rest);

}  // namespace ferry

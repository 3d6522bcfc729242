#include "kernels/cpu/screen_codes.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cpu/panel_layout.h"

namespace ferry {
namespace {

constexpr double kLimit = 127;              // of codes
constexpr int kZero = 128;                  // of weights' codes
constexpr double kUp = 1 + 0x1p-20;         // more than sums in fp64 and a rounding to fp32 can lose
constexpr double kUnit = 0x1p-24;           // of fp32
constexpr double kInflation = 1 + 0x1p-16;  // of bounds, for the arithmetic on them
constexpr double kDenormals = 0x1p-110;     // of a row's and a column's norm: more than flushed factors and sums of 65536 lose
constexpr double kSlack = 0x1p-100;
constexpr double kMostProduct = 0x1p100;  // |x| |w| up to which no sum is infinite

/// The scale whose 127 is the largest magnitude, 0 where it would be denormal.
float scale_of(double largest) {
  const auto scale = static_cast<float>(largest / kLimit);
  return scale < std::numeric_limits<float>::min() ? 0.0F : scale;
}

/// value / scale as an integer, to nearest even: between 2^52 and 2^53 doubles are 1 apart.
int code_of(double value, double inverse) {
  constexpr double kToInteger = 0x1.8p52;
  return static_cast<int>(std::clamp(value * inverse + kToInteger - kToInteger, -kLimit, kLimit));
}

/// Byte of element `i` (of `per_word` in a 32-bit word, of `bytes` each) of column `col` of a panel.
int64_t place(int64_t i, int64_t col, int64_t per_word, int64_t bytes) {
  const int64_t line = i / per_word * 2 + col / kHalfCols;
  return line * kLineBytes + col % kHalfCols * 4 + i % per_word * bytes;
}

}  // namespace

void screen_panel(const std::byte* bf16_panel, int64_t k, std::byte* int8_panel, float* column_bounds) {
  const int64_t padded = padded_k(WeightFormat::kInt8, k);
  auto* scales = reinterpret_cast<float*>(int8_panel + padded * kPanelCols);
  std::vector<float> w(static_cast<std::size_t>(k));
  for (int64_t col = 0; col < kPanelCols; ++col) {
    float largest = 0;
    bool is_finite = true;
    for (int64_t i = 0; i < k; ++i) {
      bfloat16 value;
      std::memcpy(&value, bf16_panel + place(i, col, 2, 2), sizeof(value));
      w[static_cast<std::size_t>(i)] = to_float(value);
      largest = std::max(largest, std::abs(w[static_cast<std::size_t>(i)]));
      is_finite = is_finite && std::isfinite(w[static_cast<std::size_t>(i)]);
    }
    const float scale = is_finite ? scale_of(largest) : 0.0F;
    const double inverse = scale > 0 ? 1.0 / scale : 0.0;
    double error = 0, norm = 0;
    for (int64_t i = 0; i < padded; ++i) {
      const double value = i < k && is_finite ? w[static_cast<std::size_t>(i)] : 0.0;
      const int code = code_of(value, inverse);
      int8_panel[place(i, col, 4, 1)] = static_cast<std::byte>(code + kZero);
      const double off = value - static_cast<double>(scale) * code;
      error += off * off;
      norm += value * value;
    }
    scales[col] = scale;
    constexpr float kInfinite = std::numeric_limits<float>::infinity();
    column_bounds[col] = is_finite ? static_cast<float>(std::sqrt(error) * kUp) : kInfinite;
    column_bounds[kPanelCols + col] = is_finite ? static_cast<float>(std::sqrt(norm) * kUp) : kInfinite;
  }
}

float largest_norm(const float* column_bounds, int64_t num_panels) {
  float largest = 0;
  for (int64_t p = 0; p < num_panels; ++p) {
    for (int64_t col = 0; col < kPanelCols; ++col) {
      const float norm = column_bounds[(2 * p + 1) * kPanelCols + col];
      if (std::isfinite(norm)) largest = std::max(largest, norm);
    }
  }
  return largest;
}

namespace {

/// Replaces `left` [k] by what its codes leave. Returns the codes' own norm, times the scale.
double take_codes_off(std::vector<double>& left, const ScreenCodes& to) {
  double largest = 0;
  for (const double x : left) largest = std::max(largest, std::abs(x));
  const float scale = scale_of(largest);
  const double inverse = scale > 0 ? 1.0 / scale : 0.0;
  double norm = 0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    const int code = code_of(left[i], inverse);
    to.codes[i] = static_cast<int8_t>(code);
    norm += code * code;
    left[i] -= static_cast<double>(scale) * code;
  }
  *to.scale = scale;
  return std::sqrt(norm) * scale * kUp;
}

double norm_of(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum) * kUp;
}

}  // namespace

ScreenedRow screen_row(const bfloat16* x, int64_t k, float largest_column, const ScreenCodes& first, const ScreenCodes* rest) {
  static thread_local std::vector<double> left;  // grows to the largest k
  left.resize(static_cast<std::size_t>(k));
  for (int64_t i = 0; i < k; ++i) left[static_cast<std::size_t>(i)] = to_float(x[i]);
  ScreenedRow row{.norm = norm_of(left)};
  row.is_screened = row.norm * std::max(1.0, static_cast<double>(largest_column)) < kMostProduct;  // and no NaN
  if (!row.is_screened) return row;
  double codes_norm = take_codes_off(left, first);
  row.rest = norm_of(left);
  if (rest != nullptr) codes_norm += take_codes_off(left, *rest);
  const double off = norm_of(left);
  const double gamma = 1.01 * static_cast<double>(k + 64) * kUnit, own_rounding = 8 * kUnit * codes_norm;
  row.bounds.by_error = static_cast<float>((row.norm + off + own_rounding + kDenormals) * kInflation);
  row.bounds.by_norm = static_cast<float>((off + gamma * row.norm + own_rounding + kDenormals) * kInflation);
  row.bounds.slack = static_cast<float>((kSlack + kDenormals * row.norm) * kInflation);
  return row;
}

}  // namespace ferry

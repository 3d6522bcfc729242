#include "runtime/vision/resize.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "runtime/base/check.h"

namespace ferry {
namespace {

/// Which inputs an output is made of, along one axis.
struct Taps {
  std::vector<int64_t> first;    // [outputs] input
  std::vector<int64_t> count;    // [outputs] of inputs, <= width
  std::vector<int16_t> weights;  // [outputs, width]
  int64_t width = 0;
  int precision = 0;  // bits behind the point of a weight

  const int16_t* weights_of(int64_t output) const { return weights.data() + output * width; }
};

double cubic(double x) {
  constexpr double kA = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((kA + 2.0) * x - (kA + 3.0)) * x * x + 1.0;
  if (x < 2.0) return ((kA * x - 5.0 * kA) * x + 8.0 * kA) * x - 4.0 * kA;
  return 0.0;
}

/// The most bits with which `largest` still fits into 16, at most 22.
int precision_of(double largest) {
  int bits = 0;
  while (bits < 22 && static_cast<int>(0.5 + largest * static_cast<double>(1 << (bits + 1))) < (1 << 15)) ++bits;
  return bits;
}

int16_t to_fixed(double weight, int precision) {
  return static_cast<int16_t>((weight < 0 ? -0.5 : 0.5) + weight * static_cast<double>(1 << precision));
}

Taps find_taps(int64_t inputs, int64_t outputs) {
  constexpr double kRadius = 2.0;  // of the cubic
  const double scale = static_cast<double>(inputs) / static_cast<double>(outputs);
  const double stretch = std::max(scale, 1.0), support = kRadius * stretch;
  Taps taps;
  taps.width = static_cast<int64_t>(std::ceil(static_cast<float>(support))) * 2 + 1;
  std::vector<double> weights(static_cast<std::size_t>(outputs * taps.width));
  double largest = 0.0;
  for (int64_t i = 0; i < outputs; ++i) {
    const double center = scale * (static_cast<double>(i) + 0.5);
    const int64_t first = std::max(static_cast<int64_t>(center - support + 0.5), int64_t{0});
    const int64_t end = std::min(static_cast<int64_t>(center + support + 0.5), inputs);
    const int64_t count = std::clamp(end - first, int64_t{0}, taps.width);
    double* of_output = weights.data() + i * taps.width;
    double total = 0.0;
    for (int64_t j = 0; j < count; ++j) {
      of_output[j] = cubic((static_cast<double>(j + first) - center + 0.5) * (1.0 / stretch));
      total += of_output[j];
    }
    for (int64_t j = 0; j < count && total != 0.0; ++j) {
      of_output[j] /= total;
      largest = std::max(largest, of_output[j]);
    }
    taps.first.push_back(first);
    taps.count.push_back(count);
  }
  taps.precision = precision_of(largest);
  for (const double weight : weights) taps.weights.push_back(to_fixed(weight, taps.precision));
  return taps;
}

uint8_t to_byte(int32_t sum, int precision) { return static_cast<uint8_t>(std::clamp(sum >> precision, 0, 255)); }

void resize_row(const uint8_t* from, const Taps& taps, uint8_t* to, int64_t width) {
  const int32_t half = 1 << (taps.precision - 1);
  for (int64_t x = 0; x < width; ++x) {
    const uint8_t* pixel = from + 3 * taps.first[static_cast<std::size_t>(x)];
    const int16_t* weights = taps.weights_of(x);
    int32_t sums[3] = {half, half, half};
    for (int64_t j = 0; j < taps.count[static_cast<std::size_t>(x)]; ++j, pixel += 3) {
      for (int c = 0; c < 3; ++c) sums[c] += int32_t{weights[j]} * pixel[c];
    }
    for (int c = 0; c < 3; ++c) to[3 * x + c] = to_byte(sums[c], taps.precision);
  }
}

Picture resize_columns(const Picture& from, int64_t width, const std::function<void()>& check_in) {
  const Taps taps = find_taps(from.width, width);
  Picture to = make_picture(width, from.height);
  for (int64_t y = 0; y < from.height; ++y) {
    if (check_in) check_in();
    resize_row(from.row(y), taps, to.row(y), width);
  }
  return to;
}

Picture resize_rows(const Picture& from, int64_t height, const std::function<void()>& check_in) {
  const Taps taps = find_taps(from.height, height);
  Picture to = make_picture(from.width, height);
  std::vector<int32_t> sums(static_cast<std::size_t>(from.width * 3));
  for (int64_t y = 0; y < height; ++y) {
    if (check_in) check_in();
    std::fill(sums.begin(), sums.end(), 1 << (taps.precision - 1));
    const auto i = static_cast<std::size_t>(y);
    for (int64_t j = 0; j < taps.count[i]; ++j) {
      const uint8_t* row = from.row(taps.first[i] + j);
      const int32_t weight = taps.weights_of(y)[j];
      for (std::size_t k = 0; k < sums.size(); ++k) sums[k] += weight * row[k];
    }
    uint8_t* out = to.row(y);
    for (std::size_t k = 0; k < sums.size(); ++k) out[k] = to_byte(sums[k], taps.precision);
  }
  return to;
}

}  // namespace

Picture resize_bicubic(const Picture& picture, int64_t width, int64_t height, const std::function<void()>& check_in) {
  FERRY_CHECK(picture.width > 0 && picture.height > 0 && width > 0 && height > 0);
  if (picture.width == width && picture.height == height) return picture;
  if (picture.width == width) return resize_rows(picture, height, check_in);
  const Picture narrowed = resize_columns(picture, width, check_in);
  return picture.height == height ? narrowed : resize_rows(narrowed, height, check_in);
}

}  // namespace ferry

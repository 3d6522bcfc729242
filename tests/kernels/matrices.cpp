#include "tests/kernels/matrices.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace ferry {
namespace {

/// Numbers of a normal distribution by the polar method (Marsaglia and Bray, 1964). So are those of std::normal_distribution,
/// which may take four logarithms of constants for each: a quarter of the time of the kernels' tests under sanitizers.
class NormalNumbers {
 public:
  NormalNumbers(uint32_t seed, float deviation) : generator_(seed), deviation_(deviation) {}

  float next() {
    if (has_second_) {
      has_second_ = false;
      return second_ * deviation_;
    }
    float x, y, square;
    do {
      x = 2 * uniform() - 1;
      y = 2 * uniform() - 1;
      square = x * x + y * y;
    } while (square > 1 || square == 0);
    const float length = std::sqrt(-2 * std::log(square) / square);
    has_second_ = true;
    second_ = x * length;
    return y * length * deviation_;
  }

 private:
  float uniform() { return std::min(static_cast<float>(generator_()) * 0x1p-32F, std::nextafter(1.0F, 0.0F)); }

  std::mt19937 generator_;
  const float deviation_;
  float second_ = 0;
  bool has_second_ = false;
};

}  // namespace

void fill(MatrixView view, float value) {
  for (int64_t r = 0; r < view.rows; ++r) {
    for (int64_t c = 0; c < view.cols; ++c) set_element(view, r, c, value);
  }
}

void fill_random(MatrixView view, uint32_t seed, float scale) {
  NormalNumbers normal(seed, scale);
  for (int64_t r = 0; r < view.rows; ++r) {
    for (int64_t c = 0; c < view.cols; ++c) set_element(view, r, c, normal.next());
  }
}

Matrix random_matrix(DType dtype, int64_t rows, int64_t cols, uint32_t seed, float scale) {
  Matrix matrix(dtype, rows, cols);
  fill_random(matrix.view(), seed, scale);
  return matrix;
}

}  // namespace ferry

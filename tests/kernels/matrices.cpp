#include "tests/kernels/matrices.h"

#include <random>

namespace ferry {

void fill(MatrixView view, float value) {
  for (int64_t r = 0; r < view.rows; ++r) {
    for (int64_t c = 0; c < view.cols; ++c) set_element(view, r, c, value);
  }
}

void fill_random(MatrixView view, uint32_t seed, float scale) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  for (int64_t r = 0; r < view.rows; ++r) {
    for (int64_t c = 0; c < view.cols; ++c) set_element(view, r, c, normal(generator));
  }
}

Matrix random_matrix(DType dtype, int64_t rows, int64_t cols, uint32_t seed, float scale) {
  Matrix matrix(dtype, rows, cols);
  fill_random(matrix.view(), seed, scale);
  return matrix;
}

}  // namespace ferry

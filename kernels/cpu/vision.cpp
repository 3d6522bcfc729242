#include <math.h>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/gelu.h"
#include "kernels/cpu/simd.h"

// The ops of the vision tower that work row by row.

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

// What an element costs beside one of a plain sum.
constexpr int64_t kNormCost = 3;
constexpr int64_t kGeluCost = 5;

/// Two passes over a row that stays in the first-level cache: the mean first, then the squares of what differs from it.
template <class T>
void layer_norm_row(const T* x, const LayerNormArgs& args, T* out, int64_t cols) {
  const auto count = static_cast<float>(cols);
  F32x16 sum(0.0f), squares(0.0f);
  for_each_vector(cols, [&](int64_t i, auto lanes) { sum = sum + load(x + i, lanes); });
  const float mean = horizontal_sum(sum) / count;
  int64_t i = 0;
  for (; i + kLanes <= cols; i += kLanes) {
    const F32x16 centered = load(x + i) - mean;
    squares = fma(centered, centered, squares);
  }
  float total = horizontal_sum(squares);
  for (; i < cols; ++i) total += (widen(x[i]) - mean) * (widen(x[i]) - mean);
  const float scale = 1.0f / sqrtf(total / count + args.eps);
  for_each_vector(cols, [&](int64_t j, auto lanes) {
    const F32x16 normed = rounded<float>((load(x + j, lanes) - mean) * scale);
    store(out + j, fma(normed, load(args.weight.raw() + j, lanes), load(args.bias.raw() + j, lanes)), lanes);
  });
}

template <class T>
void add_bias_row(const AddBiasArgs& args, int64_t row) {
  const T* x = row_of<T>(args.x, row);
  const float* bias = args.bias.raw();
  T* out = row_of<T>(args.out, row);
  if (args.residual.data != nullptr) {
    const T* residual = row_of<T>(args.residual, row);
    for_each_vector(args.x.cols, [=](int64_t i, auto lanes) {
      store(out + i, load(residual + i, lanes) + rounded<T>(load(x + i, lanes) + load(bias + i, lanes)), lanes);
    });
    return;
  }
  for_each_vector(args.x.cols, [=](int64_t i, auto lanes) {
    store(out + i, activate(args.activation, rounded<T>(load(x + i, lanes) + load(bias + i, lanes))), lanes);
  });
}

template <class T>
void rotate_vision_head(T* x, const float* cos, const float* sin, int64_t half) {
  for_each_vector(half, [=](int64_t j, auto lanes) {
    const F32x16 c = load(cos + j, lanes), s = load(sin + j, lanes);
    const F32x16 lower = load(x + j, lanes), upper = load(x + half + j, lanes);
    store(x + j, fma(lower, c, -rounded<float>(upper * s)), lanes);
    store(x + half + j, fma(upper, c, rounded<float>(lower * s)), lanes);
  });
}

}  // namespace

void layer_norm(ThreadPool& pool, const LayerNormArgs& args) {
  check_same_shape(args.x, args.out);
  visit_dtype(args.out.dtype, [&]<class T>() {
    parallel_rows(pool, args.x.rows, args.x.cols * kNormCost, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) layer_norm_row(row_of<T>(args.x, r), args, row_of<T>(args.out, r), args.x.cols);
    });
  });
}

void add_bias(ThreadPool& pool, const AddBiasArgs& args) {
  check_bias_shape(args);
  visit_dtype(args.out.dtype, [&]<class T>() {
    parallel_rows(pool, args.x.rows, args.x.cols * kGeluCost, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) add_bias_row<T>(args, r);
    });
  });
}

void vision_rope(ThreadPool& pool, const VisionRopeArgs& args) {
  FERRY_CHECK_EQ(args.x.cols % args.head_dim, 0);
  FERRY_CHECK_EQ(args.head_dim % 2, 0);
  const int64_t half = args.head_dim / 2;
  visit_dtype(args.x.dtype, [&]<class T>() {
    parallel_rows(pool, args.x.rows, args.x.cols, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        T* row = row_of<T>(args.x, r);
        for (int64_t at = 0; at < args.x.cols; at += args.head_dim) {
          rotate_vision_head(row + at, args.cos.raw() + r * half, args.sin.raw() + r * half, half);
        }
      }
    });
  });
}

}  // namespace ferry::FERRY_ISA_NAMESPACE

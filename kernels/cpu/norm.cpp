#include <math.h>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/simd.h"

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

/// 1 / sqrt(mean(x^2) + eps). Four partial sums hide the latency of the multiply-adds.
template <class T>
float inverse_rms(const T* x, int64_t cols, float eps) {
  F32x16 sum0(0.0f), sum1(0.0f), sum2(0.0f), sum3(0.0f);
  int64_t i = 0;
  for (; i + 4 * kLanes <= cols; i += 4 * kLanes) {
    const F32x16 x0 = load(x + i), x1 = load(x + i + kLanes), x2 = load(x + i + 2 * kLanes), x3 = load(x + i + 3 * kLanes);
    sum0 = fma(x0, x0, sum0);
    sum1 = fma(x1, x1, sum1);
    sum2 = fma(x2, x2, sum2);
    sum3 = fma(x3, x3, sum3);
  }
  for_each_vector(cols - i, [&](int64_t j, auto lanes) {
    const F32x16 v = load(x + i + j, lanes);
    sum0 = fma(v, v, sum0);
  });
  const float mean = horizontal_sum((sum0 + sum1) + (sum2 + sum3)) / static_cast<float>(cols);
  return 1.0f / sqrtf(mean + eps);
}

/// `N` is the type that the normed value is rounded to: T, or float where only the product is rounded.
template <class T, class N>
void rms_norm_row(const T* x, const float* weight, float eps, T* out, int64_t cols) {
  const float scale = inverse_rms(x, cols, eps);
  for_each_vector(cols, [=](int64_t i, auto lanes) {
    store(out + i, rounded<N>(load(x + i, lanes) * scale) * load(weight + i, lanes), lanes);
  });
}

template <class T, class N>
void rms_norm_rows(ThreadPool& pool, const RmsNormArgs& args) {
  parallel_rows(pool, args.x.rows, args.x.cols, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r)
      rms_norm_row<T, N>(row_of<T>(args.x, r), args.weight.raw(), args.eps, row_of<T>(args.out, r), args.x.cols);
  });
}

/// `W` is the type that the weighted value is rounded to: T, or float where the weight is kept in fp32.
template <class T, class W>
void gated_rms_norm_row(const T* x, const T* gate, const float* weight, float eps, T* out, int64_t cols) {
  const float scale = inverse_rms(x, cols, eps);
  for_each_vector(cols, [=](int64_t i, auto lanes) {
    const F32x16 normed = rounded<T>(load(x + i, lanes) * scale);
    const F32x16 weighted = rounded<W>(load(weight + i, lanes) * normed);
    store(out + i, weighted * silu(load(gate + i, lanes)), lanes);
  });
}

template <class T, class W>
void gated_rms_norm_rows(ThreadPool& pool, const GatedRmsNormArgs& args) {
  constexpr int64_t kSiluCost = 4;  // what an element costs beside one of a plain sum
  parallel_rows(pool, args.x.rows, args.x.cols * kSiluCost, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      gated_rms_norm_row<T, W>(row_of<T>(args.x, r), row_of<T>(args.gate, r), args.weight.raw(), args.eps,
                               row_of<T>(args.out, r), args.x.cols);
    }
  });
}

}  // namespace

void rms_norm(ThreadPool& pool, const RmsNormArgs& args) {
  check_same_shape(args.x, args.out);
  visit_dtype(args.out.dtype, [&]<class T>() {
    if (args.rounds_first) {
      rms_norm_rows<T, T>(pool, args);
    } else {
      rms_norm_rows<T, float>(pool, args);
    }
  });
}

void gated_rms_norm(ThreadPool& pool, const GatedRmsNormArgs& args) {
  check_same_shape(args.x, args.out);
  check_same_shape(args.gate, args.out);
  visit_dtype(args.out.dtype, [&]<class T>() {
    if (args.weight_dtype == args.out.dtype) {
      gated_rms_norm_rows<T, T>(pool, args);
    } else {
      gated_rms_norm_rows<T, float>(pool, args);
    }
  });
}

}  // namespace ferry::FERRY_ISA_NAMESPACE

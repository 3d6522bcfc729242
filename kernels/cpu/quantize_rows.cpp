#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/simd.h"

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

constexpr float kInt8Limit = 127.0f;
constexpr float kRoundingShift = 12582912.0f;  // 1.5 * 2^23: adding and taking it away rounds to the nearest integer
constexpr float kSmallestNormal = 1.17549435e-38f;

/// The largest magnitude of a row; NaN if an element is NaN or infinite.
template <class T>
float find_magnitude(const T* x, int64_t cols) {
  F32x16 largest(0.0f), poison(0.0f);  // 0 * NaN and 0 * infinity are NaN
  for_each_vector(cols, [&](int64_t i, auto lanes) {
    const F32x16 v = load(x + i, lanes);
    largest = max(max(v, -v), largest);
    poison = fma(v, 0.0f, poison);
  });
  return horizontal_max(largest) + horizontal_sum(poison);
}

template <class T>
void quantize_row(const T* x, int64_t cols, int8_t* codes, int64_t padded_cols, float& scale) {
  const float magnitude = find_magnitude(x, cols);
  scale = magnitude / kInt8Limit;
  if (!(scale >= kSmallestNormal)) {  // zeros, denormals, NaN
    if (scale < kSmallestNormal) scale = 0.0f;
    __builtin_memset(codes, 0, static_cast<std::size_t>(padded_cols));
    return;
  }
  const float inverse = kInt8Limit / magnitude;
  for (int64_t i = 0; i < cols; i += kLanes) {
    const int64_t count = cols - i < kLanes ? cols - i : kLanes;
    const F32x16 v = count == kLanes ? load(x + i) : load_partial(x + i, count);
    store_codes(codes + i, rounded<float>(rounded<float>(v * inverse) + kRoundingShift) - kRoundingShift, count);
  }
  __builtin_memset(codes + cols, 0, static_cast<std::size_t>(padded_cols - cols));
}

}  // namespace

void quantize_rows(ThreadPool& pool, const QuantizeRowsArgs& args) {
  check_quantized_shape(args);
  visit_dtype(args.x.dtype, [&]<class T>() {
    parallel_rows(pool, args.x.rows, 2 * args.x.cols, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        quantize_row(row_of<T>(args.x, r), args.x.cols, row_of<int8_t>(args.codes, r), args.codes.cols, args.scales.raw()[r]);
      }
    });
  });
}

}  // namespace ferry::FERRY_ISA_NAMESPACE

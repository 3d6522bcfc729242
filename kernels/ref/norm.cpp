#include <cmath>

#include "kernels/ref/ref_ops.h"

namespace ferry::ref {
namespace {

template <class T>
float inverse_rms(const T* x, int64_t cols, float eps) {
  float sum = 0.0f;
  for (int64_t c = 0; c < cols; ++c) sum += to_float(x[c]) * to_float(x[c]);
  return 1.0f / std::sqrt(sum / static_cast<float>(cols) + eps);
}

}  // namespace

void rms_norm(ThreadPool&, const RmsNormArgs& args) {
  check_same_shape(args.x, args.out);
  visit_dtype(args.out.dtype, [&]<class T>() {
    for (int64_t r = 0; r < args.x.rows; ++r) {
      const T* x = args.x.row<T>(r);
      const float scale = inverse_rms(x, args.x.cols, args.eps);
      for (int64_t c = 0; c < args.x.cols; ++c) {
        const float normed = to_float(x[c]) * scale;
        args.out.row<T>(r)[c] = from_float<T>((args.rounds_first ? round_to<T>(normed) : normed) * args.weight.raw()[c]);
      }
    }
  });
}

void gated_rms_norm(ThreadPool&, const GatedRmsNormArgs& args) {
  check_same_shape(args.x, args.out);
  check_same_shape(args.gate, args.out);
  visit_dtype(args.out.dtype, [&]<class T>() {
    const bool rounds_weighted = args.weight_dtype == args.out.dtype;
    for (int64_t r = 0; r < args.x.rows; ++r) {
      const T* x = args.x.row<T>(r);
      const float scale = inverse_rms(x, args.x.cols, args.eps);
      for (int64_t c = 0; c < args.x.cols; ++c) {
        const float normed = round_to<T>(to_float(x[c]) * scale);
        const float product = args.weight.raw()[c] * normed;
        const float weighted = rounds_weighted ? round_to<T>(product) : product;
        args.out.row<T>(r)[c] = from_float<T>(weighted * silu(to_float(args.gate.row<T>(r)[c])));
      }
    }
  });
}

}  // namespace ferry::ref

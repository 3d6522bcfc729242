#include "kernels/ref/ref_ops.h"

namespace ferry::ref {

void rope(ThreadPool&, const RopeArgs& args) {
  FERRY_CHECK_EQ(args.x.cols % args.head_dim, 0);
  FERRY_CHECK_EQ(args.rotary_dim % 2, 0);
  FERRY_CHECK_LE(args.rotary_dim, args.head_dim);
  const int64_t half = args.rotary_dim / 2;
  visit_dtype(args.x.dtype, [&]<class T>() {
    for (int64_t r = 0; r < args.x.rows; ++r) {
      for (int64_t head = 0; head < args.x.cols / args.head_dim; ++head) {
        T* x = args.x.row<T>(r) + head * args.head_dim;
        for (int64_t j = 0; j < half; ++j) {
          const float c = args.cos.raw()[r * half + j];
          const float s = args.sin.raw()[r * half + j];
          const float lower = to_float(x[j]);
          const float upper = to_float(x[half + j]);
          x[j] = from_float<T>(round_to<T>(lower * c) - round_to<T>(upper * s));
          x[half + j] = from_float<T>(round_to<T>(upper * c) + round_to<T>(lower * s));
        }
      }
    }
  });
}

}  // namespace ferry::ref

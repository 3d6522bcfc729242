#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/simd.h"

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

template <class T>
void rotate_head(T* x, const float* cos, const float* sin, int64_t half) {
  for_each_vector(half, [=](int64_t j, auto lanes) {
    const F32x16 c = load(cos + j, lanes);
    const F32x16 s = load(sin + j, lanes);
    const F32x16 lower = load(x + j, lanes);
    const F32x16 upper = load(x + half + j, lanes);
    store(x + j, rounded<T>(lower * c) - rounded<T>(upper * s), lanes);
    store(x + half + j, rounded<T>(upper * c) + rounded<T>(lower * s), lanes);
  });
}

}  // namespace

void rope(ThreadPool& pool, const RopeArgs& args) {
  FERRY_CHECK_EQ(args.x.cols % args.head_dim, 0);
  FERRY_CHECK_EQ(args.rotary_dim % 2, 0);
  FERRY_CHECK_LE(args.rotary_dim, args.head_dim);
  const int64_t half = args.rotary_dim / 2;
  const int64_t num_heads = args.x.cols / args.head_dim;
  visit_dtype(args.x.dtype, [&]<class T>() {
    parallel_rows(pool, args.x.rows, num_heads * args.rotary_dim, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        for (int64_t h = 0; h < num_heads; ++h) {
          rotate_head(row_of<T>(args.x, r) + h * args.head_dim, args.cos.raw() + r * half, args.sin.raw() + r * half, half);
        }
      }
    });
  });
}

}  // namespace ferry::FERRY_ISA_NAMESPACE

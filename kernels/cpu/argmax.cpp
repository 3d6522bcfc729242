#include <math.h>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/simd.h"

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

constexpr int64_t kBlockCols = 4096;  // of which only the one with the largest value is looked through
constexpr int kChains = 4;            // independent maxima, as a comparison takes some cycles

template <class T>
float largest_of(const T* x, int64_t cols) {
  F32x16 chains[kChains] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
  int64_t c = 0;
  for (; c + kChains * kLanes <= cols; c += kChains * kLanes) {
    for (int i = 0; i < kChains; ++i) chains[i] = max(load(x + c + i * kLanes), chains[i]);  // a NaN loses
  }
  float largest = horizontal_max(max(max(chains[0], chains[1]), max(chains[2], chains[3])));
  for (; c < cols; ++c) largest = widen(x[c]) > largest ? widen(x[c]) : largest;
  return largest;
}

template <class T>
int32_t best_column(const T* x, int64_t cols) {
  float largest = -INFINITY;
  int64_t block = -1;
  for (int64_t first = 0; first < cols; first += kBlockCols) {
    const float here = largest_of(x + first, cols - first < kBlockCols ? cols - first : kBlockCols);
    if (!(here > largest)) continue;
    largest = here;
    block = first;
  }
  if (block < 0) return kNoToken;
  while (widen(x[block]) != largest) ++block;
  return static_cast<int32_t>(block);
}

}  // namespace

void argmax(ThreadPool& pool, const ArgmaxArgs& args) {
  for (const int32_t row : args.rows) FERRY_CHECK(row >= 0 && row < args.x.rows) << " row index " << row;
  visit_dtype(args.x.dtype, [&]<class T>() {
    parallel_rows(pool, static_cast<int64_t>(args.rows.size()), args.x.cols, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const int32_t row = args.rows[static_cast<std::size_t>(i)];
        args.ids.raw()[row] = best_column(row_of<T>(args.x, row), args.x.cols);
      }
    });
  });
}

}  // namespace ferry::FERRY_ISA_NAMESPACE

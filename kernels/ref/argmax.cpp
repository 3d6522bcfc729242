#include <limits>

#include "kernels/ref/ref_ops.h"

namespace ferry::ref {

void argmax(ThreadPool&, const ArgmaxArgs& args) {
  visit_dtype(args.x.dtype, [&]<class T>() {
    for (const int32_t r : args.rows) {
      FERRY_CHECK(r >= 0 && r < args.x.rows) << " row index " << r;
      const T* x = args.x.row<T>(r);
      float largest = -std::numeric_limits<float>::infinity();
      int32_t id = kNoToken;
      for (int64_t c = 0; c < args.x.cols; ++c) {
        if (!(to_float(x[c]) > largest)) continue;
        largest = to_float(x[c]);
        id = static_cast<int32_t>(c);
      }
      args.ids.raw()[r] = id;
    }
  });
}

}  // namespace ferry::ref

#include "kernels/matmul.h"

#include <cstring>

#include "kernels/tensor.h"

namespace ferry {
namespace {

/// A row-major copy of the weights.
class RefPackedMatrix final : public PackedMatrix {
 public:
  explicit RefPackedMatrix(ConstMatrixView weights)
      : PackedMatrix(weights.rows, weights.cols, weights.dtype), copy_(weights.dtype, weights.rows, weights.cols) {
    const auto row_bytes = static_cast<std::size_t>(weights.cols * dtype_bytes(weights.dtype));
    for (int64_t r = 0; r < weights.rows; ++r) std::memcpy(copy_.view().row_bytes(r), weights.row_bytes(r), row_bytes);
  }

  int64_t packed_bytes() const override { return n() * k() * dtype_bytes(dtype()); }
  ConstMatrixView weights() const { return copy_.view(); }

 private:
  Matrix copy_;
};

template <class T>
void multiply(ConstMatrixView x, ConstMatrixView weights, MatrixView out) {
  for (int64_t m = 0; m < x.rows; ++m) {
    for (int64_t n = 0; n < weights.rows; ++n) {
      float sum = 0.0f;
      for (int64_t k = 0; k < weights.cols; ++k) sum += to_float(x.row<T>(m)[k]) * to_float(weights.row<T>(n)[k]);
      out.row<T>(m)[n] = from_float<T>(sum);
    }
  }
}

class RefMatmul final : public MatmulBackend {
 public:
  const char* name() const override { return "ref"; }

  std::unique_ptr<PackedMatrix> pack(ConstMatrixView weights) override { return std::make_unique<RefPackedMatrix>(weights); }

  void grouped_matmul(ThreadPool&, const GroupedMatmulArgs& args) override {
    FERRY_CHECK_EQ(args.counts.size(), args.weights.size());
    FERRY_CHECK_EQ(args.x.rows, args.out.rows);
    FERRY_CHECK(args.x.dtype == args.out.dtype);
    int64_t first = 0;
    for (std::size_t g = 0; g < args.counts.size(); ++g) {
      const int64_t count = args.counts[g];
      if (count == 0) continue;
      const auto* packed = dynamic_cast<const RefPackedMatrix*>(args.weights[g]);
      FERRY_CHECK(packed != nullptr) << " group " << g << " has rows but no weights packed by this backend";
      FERRY_CHECK_EQ(packed->k(), args.x.cols);
      FERRY_CHECK_EQ(packed->n(), args.out.cols);
      FERRY_CHECK(packed->dtype() == args.x.dtype);
      visit_dtype(args.x.dtype, [&]<class T>() {
        multiply<T>(args.x.rows_from(first, count), packed->weights(), args.out.rows_from(first, count));
      });
      first += count;
    }
    FERRY_CHECK_EQ(first, args.x.rows);
  }
};

}  // namespace

std::unique_ptr<MatmulBackend> make_ref_matmul() { return std::make_unique<RefMatmul>(); }

}  // namespace ferry

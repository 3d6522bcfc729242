#include "kernels/matmul.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/ref/ref_ops.h"
#include "kernels/tensor.h"

namespace ferry {
namespace {

/// A row-major copy of the weights.
class RefMatrix final : public PackedMatrix {
 public:
  RefMatrix(ConstMatrixView weights, WeightUse use)
      : PackedMatrix(weights.rows, weights.cols, plain_weights(weights.dtype), use),
        values_(weights.dtype, weights.rows, weights.cols) {
    const auto row_bytes = static_cast<std::size_t>(weights.cols * dtype_bytes(weights.dtype));
    for (int64_t r = 0; r < weights.rows; ++r) std::memcpy(values_.view().row_bytes(r), weights.row_bytes(r), row_bytes);
  }
  RefMatrix(const QuantizedMatrix& weights, WeightUse use)
      : PackedMatrix(weights.n, weights.k, weights.type, use), quantized_(weights) {}

  int64_t packed_bytes() const override {
    if (quantized_.codes.empty()) return n() * k() * dtype_bytes(values_.dtype());
    return static_cast<int64_t>(quantized_.codes.size() + quantized_.scales.size() * 5);
  }

  /// Row m of x times row n of the weights.
  float dot(const MatmulRows& rows, int64_t m, int64_t n) const {
    if (type().is_integer()) return integer_dot(rows, m, n);
    return visit_dtype(rows.x.dtype, [&]<class T>() {
      const T* x = rows.x.row<T>(m);
      float sum = 0.0f;
      if (type().format == WeightFormat::kE4M3) {
        for (int64_t i = 0; i < k(); ++i) sum += to_float(x[i]) * quantized_.value(n, i);
        return sum;
      }
      const T* w = values_.view().row<T>(n);
      for (int64_t i = 0; i < k(); ++i) sum += to_float(x[i]) * to_float(w[i]);
      return sum;
    });
  }

 private:
  float integer_dot(const MatmulRows& rows, int64_t m, int64_t n) const {
    const QuantizedMatrix& w = quantized_;
    const int8_t* x = rows.x.row<int8_t>(m);
    float sum = 0.0f;
    for (int64_t g = 0; g < w.num_groups(); ++g) {
      const auto at = static_cast<std::size_t>(n * w.num_groups() + g);
      int64_t dot = 0;
      for (int64_t i = g * w.group; i < (g + 1) * w.group; ++i) {
        dot += int64_t{x[i]} * (int64_t{w.codes[static_cast<std::size_t>(n * w.k + i)]} - w.zero_points[at]);
      }
      if (type().format == WeightFormat::kInt8) return static_cast<float>(dot) * w.scales[at] * rows.scales.raw()[m];
      sum = std::fma(w.scales[at], static_cast<float>(dot), sum);
    }
    return sum * rows.scales.raw()[m];
  }

  Matrix values_;              // [n, k], of plain weights
  QuantizedMatrix quantized_;  // of the others
};

template <class T>
T gated(float gate, float up) {
  const float rounded = round_to<T>(gate);
  return from_float<T>(round_to<T>(rounded / (1.0f + std::exp(-rounded))) * round_to<T>(up));
}

/// Element (m, c) of all rows' product becomes T.
template <class T>
T finished(const ProductFinish& finish, int64_t m, int64_t c, float sum) {
  if (finish.bias.raw() == nullptr) return from_float<T>(sum);
  const float y = round_to<T>(sum + finish.bias.raw()[c]);
  if (finish.residual.data == nullptr) return from_float<T>(ref::activate(finish.activation, y));
  return from_float<T>(to_float(finish.residual.row<T>(m)[c]) + y);
}

/// Rows [first, first + count) of the call.
template <class T>
void multiply(const GroupedMatmulArgs& args, const RefMatrix& weights, int64_t first, int64_t count) {
  for (int64_t m = first; m < first + count; ++m) {
    for (int64_t c = 0; c < args.out.cols; ++c) {
      const float sum = weights.dot(args.rows, m, c);
      args.out.row<T>(m)[c] = weights.is_gated() ? gated<T>(sum, weights.dot(args.rows, m, c + args.out.cols))
                                                 : finished<T>(args.finish, m, c, sum);
    }
  }
}

class RefMatmul final : public Matmul {
 public:
  const char* name() const override { return "ref"; }

  std::unique_ptr<PackedMatrix> pack(ConstMatrixView weights, WeightUse use, ThreadPool*) override {
    return std::make_unique<RefMatrix>(weights, use);
  }
  std::unique_ptr<PackedMatrix> pack(const QuantizedMatrix& weights, WeightUse use, ThreadPool*) override {
    return std::make_unique<RefMatrix>(weights, use);
  }

  void grouped_matmul(Stream&, const GroupedMatmulArgs& args) override {
    FERRY_CHECK_EQ(args.counts.size(), args.weights.size());
    FERRY_CHECK_EQ(args.rows.x.rows, args.out.rows);
    int64_t first = 0;
    for (std::size_t g = 0; g < args.counts.size(); ++g) {
      const int64_t count = args.counts[g];
      if (count == 0) continue;
      const auto* weights = dynamic_cast<const RefMatrix*>(args.weights[g]);
      FERRY_CHECK(weights != nullptr) << " group " << g << " has rows but no weights packed by this backend";
      FERRY_CHECK_EQ(weights->type().is_integer() ? quantized_cols(weights->k()) : weights->k(), args.rows.x.cols);
      FERRY_CHECK_EQ(weights->out_cols(), args.out.cols);
      check_finish(args, *weights);
      FERRY_CHECK_EQ(weights->type().is_integer(), args.rows.x.dtype == DType::kI8);
      visit_dtype(args.out.dtype, [&]<class T>() { multiply<T>(args, *weights, first, count); });
      first += count;
    }
    FERRY_CHECK_EQ(first, args.rows.x.rows);
  }
};

}  // namespace

std::unique_ptr<Matmul> make_ref_matmul() { return std::make_unique<RefMatmul>(); }

}  // namespace ferry

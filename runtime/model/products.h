#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/ops.h"
#include "runtime/model/step_input.h"

namespace ferry {

/// The micro-batch's rows of a step's intermediate.
inline MatrixView rows_of(Matrix& step_rows, const MicroBatch& batch) {
  return step_rows.view().rows_from(batch.first_row, batch.num_tokens);
}

/// Row `r` of a matrix of fp32.
inline Address<float> row_of(Matrix& matrix, int64_t r) {
  const MatrixView view = matrix.view();
  FERRY_CHECK(view.dtype == DType::kF32);
  return {reinterpret_cast<float*>(view.row_address(r)), view.space};
}

/// Room for the codes of a step's rows, of several widths.
class CodeBuffer {
 public:
  CodeBuffer() = default;
  CodeBuffer(Memory& memory, int64_t max_rows, int64_t max_cols);
  /// [batch's rows, quantized_cols(cols)] i8
  MatrixView codes(const MicroBatch& batch, int64_t cols);
  /// [batch's rows]
  Address<float> scales(const MicroBatch& batch) { return scales_.data() + batch.first_row; }

 private:
  Array<std::byte> bytes_;
  Array<float> scales_;
};

/// Rows as products take them: plain weights read values, quantised ones codes (empty where nothing needs them).
struct Activations {
  ConstMatrixView values;
  MatmulRows codes;
};

/// One of several products of the same rows.
struct Linear {
  Zone zone{};  // what it is recorded as
  const PackedMatrix* weights = nullptr;
  MatrixView out;
};

/// The matrix products of a step, with what runs them. Borrows all of it.
class Products {
 public:
  explicit Products(Stream& stream) : stream_(stream) {}

  Stream& stream() const { return stream_; }
  /// The rows `x` of `batch`, with their codes in `buffer` if `is_quantized`.
  Activations activations(ConstMatrixView x, CodeBuffer& buffer, const MicroBatch& batch, bool is_quantized) const;
  /// out = x times weights, recorded as `zone`.
  void linear(Zone zone, const Activations& x, const PackedMatrix& weights, MatrixView out) const {
    linears(x, {{zone, &weights, out}});
  }
  /// Up to kMostTogether of them in one call: where they run side by side, threads meet once.
  void linears(const Activations& x, std::span<const Linear> products) const;
  void linears(const Activations& x, std::initializer_list<Linear> products) const {
    linears(x, std::span(products.begin(), products.size()));
  }

 private:
  static constexpr std::size_t kMostTogether = 4;

  Stream& stream_;
};

}  // namespace ferry

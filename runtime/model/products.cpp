#include "runtime/model/products.h"

#include "profiler/span.h"
#include "runtime/base/check.h"

namespace ferry {

CodeBuffer::CodeBuffer(int64_t max_rows, int64_t max_cols)
    : bytes_(static_cast<std::size_t>(max_rows * quantized_cols(max_cols))), scales_(static_cast<std::size_t>(max_rows)) {}

MatrixView CodeBuffer::codes(const MicroBatch& batch, int64_t cols) {
  const int64_t padded = quantized_cols(cols);
  FERRY_CHECK_LE(static_cast<std::size_t>((batch.first_row + batch.num_tokens) * padded), bytes_.size());
  return {bytes_.data() + batch.first_row * padded, DType::kI8, batch.num_tokens, padded, padded};
}

Activations Products::activations(ConstMatrixView x, CodeBuffer& buffer, const MicroBatch& batch, bool is_quantized) const {
  if (!is_quantized) return {x, {}};
  const MatrixView codes = buffer.codes(batch, x.cols);
  float* scales = buffer.scales(batch);
  quantize_rows(stream_, {.x = x, .codes = codes, .scales = scales});
  return {x, {codes, scales}};
}

void Products::linear(Zone zone, const Activations& x, const PackedMatrix& weights, MatrixView out) const {
  const Span span(zone, out.rows);
  matmul(stream_, weights.type().is_integer() ? x.codes : MatmulRows{x.values}, weights, out);
}

}  // namespace ferry

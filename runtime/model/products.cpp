#include "runtime/model/products.h"

#include "profiler/span.h"
#include "runtime/base/check.h"

namespace ferry {

CodeBuffer::CodeBuffer(Memory& memory, int64_t max_rows, int64_t max_cols)
    : bytes_(memory, max_rows * quantized_cols(max_cols)), scales_(memory, max_rows) {}

MatrixView CodeBuffer::codes(const MicroBatch& batch, int64_t cols) {
  const int64_t padded = quantized_cols(cols);
  FERRY_CHECK_LE((batch.first_row + batch.num_tokens) * padded, bytes_.size());
  const Address<std::byte> first = bytes_.data() + batch.first_row * padded;
  return {first.raw(), DType::kI8, batch.num_tokens, padded, padded, first.space()};
}

Activations Products::activations(ConstMatrixView x, CodeBuffer& buffer, const MicroBatch& batch, bool is_quantized) const {
  if (!is_quantized) return {x, {}};
  const MatrixView codes = buffer.codes(batch, x.cols);
  const Address<float> scales = buffer.scales(batch);
  quantize_rows(stream_, {.x = x, .codes = codes, .scales = scales});
  return {x, {codes, scales}};
}

void Products::linear(Zone zone, const Activations& x, const PackedMatrix& weights, MatrixView out) const {
  const Span span(zone, out.rows);
  matmul(stream_, weights.type().is_integer() ? x.codes : MatmulRows{x.values}, weights, out);
}

}  // namespace ferry

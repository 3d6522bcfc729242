#include "runtime/model/products.h"

#include <array>

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

void Products::linears(const Activations& x, std::span<const Linear> products) const {
  FERRY_CHECK_LE(products.size(), kMostTogether);
  std::array<NamedProduct, kMostTogether> named;
  std::size_t count = 0;
  for (const Linear& product : products) {
    const MatmulRows rows = product.weights->type().is_integer() ? x.codes : MatmulRows{x.values};
    named[count++] = {.zone = product.zone, .rows = rows, .weights = product.weights, .out = product.out};
  }
  matmuls(stream_, std::span(named).first(count));
}

}  // namespace ferry

#include "runtime/model/ffn/dense.h"

namespace ferry {

DenseFfn::DenseFfn(const ModelConfig& config, const BlockLimits& limits)
    : is_quantized_(ferry::takes_codes(limits.quantization.shared)),
      activated_(limits.stream.memory(), limits.dtype, limits.max_tokens, config.dense.intermediate_dim) {
  if (is_quantized_) codes_ = CodeBuffer(limits.stream.memory(), limits.max_tokens, config.dense.intermediate_dim);
}

void DenseFfn::run(const BlockStep& step, const DenseWeights& w, MatrixView out) {
  const Products& products = step.products;
  const MatrixView activated = rows_of(activated_, step.batch);
  products.linear(Zone::kDenseGateUp, step.normed, *w.gate_up, activated);
  products.linear(Zone::kDenseDown, products.activations(activated, codes_, step.batch, is_quantized_), *w.down, out);
}

void DenseFfn::describe(const ModelConfig& config, OperatorList& list) {
  list.gated_product(Zone::kDenseGateUp, config.hidden_dim, config.dense.intermediate_dim, list.quantization().shared);
  list.product(Zone::kDenseDown, config.dense.intermediate_dim, config.hidden_dim, list.quantization().shared);
}

}  // namespace ferry

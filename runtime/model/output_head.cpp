#include "runtime/model/output_head.h"

namespace ferry {

OutputHead::OutputHead(const ModelConfig& config, const TrunkWeights& weights, const LayerRunner& runner, DType dtype,
                       int64_t max_logit_rows)
    : weights_(weights),
      runner_(runner),
      rows_(runner.stream().memory(), dtype, max_logit_rows, config.hidden_dim),
      logits_(runner.stream().memory(), dtype, max_logit_rows, config.vocab_size) {
  if (takes_codes(weights.quantization.lm_head))
    codes_ = CodeBuffer(runner.stream().memory(), max_logit_rows, config.hidden_dim);
}

ConstMatrixView OutputHead::run(ConstMatrixView hidden, std::span<const int32_t> rows, const Array<float>& norm) {
  num_rows_ = static_cast<int64_t>(rows.size());
  const MatrixView picked = rows_.top(num_rows_), logits = logits_.top(num_rows_);
  gather_rows(runner_.stream(), {.x = hidden, .row_idx = rows, .out = picked});
  runner_.norm(Zone::kFinalNorm, picked, norm, picked);
  const Products& products = runner_.products();
  const MicroBatch all{.num_tokens = num_rows_};
  products.linear(Zone::kLmHead, products.activations(picked, codes_, all, takes_codes(weights_.quantization.lm_head)),
                  *weights_.lm_head, logits);
  return logits;
}

}  // namespace ferry

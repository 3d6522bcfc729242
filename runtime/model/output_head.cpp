#include "runtime/model/output_head.h"

#include <algorithm>

#include "profiler/span.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

constexpr int64_t kMostScreenedRows = 256;  // more are multiplied whole; 9 MB of bounds for 248320 columns

}  // namespace

OutputHead::OutputHead(const ModelConfig& config, const TrunkWeights& weights, const LayerRunner& runner, DType dtype,
                       const DecoderLimits& limits)
    : weights_(weights),
      runner_(runner),
      rows_(runner.stream().memory(), dtype, limits.max_logit_rows, config.hidden_dim),
      logits_(runner.stream().memory(), dtype, limits.max_logit_rows, config.vocab_size) {
  if (takes_codes(weights.quantization.lm_head))
    codes_ = CodeBuffer(runner.stream().memory(), limits.max_logit_rows, config.hidden_dim);
  if (!limits.screens_lm_head) return;
  Stream& stream = runner.stream();
  screen_ = make_argmax_screen(stream.backend().matmul(), *weights.lm_head, std::min(kMostScreenedRows, limits.max_logit_rows),
                               stream.pool());
  if (screen_ == nullptr) {
    throw_invalid("--lm-head-screen: lm_head is " + weight_type_name(weights.lm_head->type()) + " for " +
                  stream.backend().matmul().name() + "; allowed: bf16, for the CPU's own kernels (--matmul auto)");
  }
}

ConstMatrixView OutputHead::run(ConstMatrixView hidden, std::span<const int32_t> rows, const Array<float>& norm) {
  num_rows_ = static_cast<int64_t>(rows.size());
  const MatrixView picked = rows_.top(num_rows_);
  const SpanChain chain;
  gather_rows(runner_.stream(), {.x = hidden, .row_idx = rows, .out = picked});
  runner_.norm(Zone::kFinalNorm, picked, norm, picked);
  is_pending_ = true;
  if (screen_ == nullptr) compute();
  return logits_.top(num_rows_);
}

void OutputHead::compute() {
  if (!is_pending_) return;
  const Products& products = runner_.products();
  const MicroBatch all{.num_tokens = num_rows_};
  const bool is_quantized = takes_codes(weights_.quantization.lm_head);
  products.linear(Zone::kLmHead, products.activations(rows_.top(num_rows_), codes_, all, is_quantized), *weights_.lm_head,
                  logits_.top(num_rows_));
  is_pending_ = false;
}

bool OutputHead::find_tokens(std::span<const int32_t> rows, int64_t num_cols, int32_t* ids) {
  if (!is_pending_ || std::ssize(rows) > kMostScreenedRows) return false;
  const Span span(Zone::kLmHead, std::ssize(rows));
  return screen_->argmax(runner_.stream(), rows_.top(num_rows_), num_cols, rows, ids);
}

}  // namespace ferry

#include "moe/grouped_ffn.h"

#include <algorithm>

#include "profiler/span.h"

namespace ferry {

GroupedFfn::GroupedFfn(const ExpertDims& dims, WeightType type, Stream& stream, DType dtype, int64_t max_rows)
    : is_quantized_(type.is_integer()),
      stream_(stream),
      permuted_(stream.memory(), is_quantized_ ? DType::kI8 : dtype, max_rows,
                row_cols(is_quantized_ ? DType::kI8 : dtype, dims.hidden_dim)),
      permuted_scales_(stream.memory(), max_rows),
      activated_(stream.memory(), dtype, max_rows, dims.intermediate_dim),
      codes_(stream.memory(), DType::kI8, is_quantized_ ? max_rows : 0, quantized_cols(dims.intermediate_dim)),
      scales_(stream.memory(), codes_.rows()) {}

void GroupedFfn::run(const LayerExperts& experts, const ExpertRows& rows, MatrixView out) {
  const auto num_rows = static_cast<int64_t>(rows.row_token.size());
  FERRY_CHECK_LE(num_rows, permuted_.rows());
  FERRY_CHECK_EQ(rows.expert_counts.size(), experts.gate_up.size());
  if (num_rows == 0) return;
  const MatrixView activated = activated_.top(num_rows);
  const auto num_experts = std::ranges::count_if(rows.expert_counts, [](int32_t count) { return count > 0; });
  const SpanChain chain;
  const MatmulRows permuted = permute(rows);
  {
    const Span span(Zone::kGroupedGateUp, num_rows, num_experts);
    grouped_matmul(stream_, {.rows = permuted, .counts = rows.expert_counts, .weights = experts.gate_up, .out = activated});
  }
  const MatmulRows down_rows = quantize(activated);
  const Span span(Zone::kGroupedDown, num_rows, num_experts);
  grouped_matmul(stream_, {.rows = down_rows, .counts = rows.expert_counts, .weights = experts.down, .out = out});
}

/// The tokens' rows in the order of the experts.
MatmulRows GroupedFfn::permute(const ExpertRows& rows) {
  const MatrixView permuted = permuted_.top(static_cast<int64_t>(rows.row_token.size()));
  const bool has_scales = static_cast<bool>(rows.tokens.scales);
  const Address<float> scales = has_scales ? permuted_scales_.data() : nullptr;
  gather_rows(stream_, {.zone = Zone::kPermute,
                        .x = rows.tokens.x,
                        .row_idx = rows.row_token,
                        .out = permuted,
                        .scales = rows.tokens.scales,
                        .out_scales = scales});
  return {permuted, scales};
}

MatmulRows GroupedFfn::quantize(MatrixView activated) {
  if (!is_quantized_) return {activated};
  const MatrixView codes = codes_.top(activated.rows);
  quantize_rows(stream_, {.zone = Zone::kExpertQuantize, .x = activated, .codes = codes, .scales = scales_.data()});
  return {codes, scales_.data()};
}

}  // namespace ferry

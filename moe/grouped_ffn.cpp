#include "moe/grouped_ffn.h"

#include <algorithm>

#include "profiler/span.h"

namespace ferry {

GroupedFfn::GroupedFfn(const ExpertBank& bank, Stream& stream, DType dtype, int64_t max_rows)
    : bank_(bank),
      stream_(stream),
      permuted_(stream.memory(), bank.row_dtype(dtype), max_rows, row_cols(bank.row_dtype(dtype), bank.dims().hidden_dim)),
      permuted_scales_(stream.memory(), max_rows),
      activated_(stream.memory(), dtype, max_rows, bank.dims().intermediate_dim),
      codes_(stream.memory(), DType::kI8, bank.is_quantized() ? max_rows : 0, quantized_cols(bank.dims().intermediate_dim)),
      scales_(stream.memory(), codes_.rows()) {}

void GroupedFfn::run(int64_t layer, const ExpertRows& rows, MatrixView out) {
  const auto num_rows = static_cast<int64_t>(rows.row_token.size());
  FERRY_CHECK(layer >= 0 && layer < bank_.num_layers()) << " layer " << layer;
  FERRY_CHECK_LE(num_rows, permuted_.rows());
  FERRY_CHECK_EQ(static_cast<int64_t>(rows.expert_counts.size()), bank_.num_local_experts());
  if (num_rows == 0) return;
  const MatrixView activated = activated_.top(num_rows);
  const auto num_experts = std::ranges::count_if(rows.expert_counts, [](int32_t count) { return count > 0; });
  const MatmulRows permuted = permute(rows);
  {
    const Span span(Zone::kGroupedGateUp, num_rows, num_experts);
    grouped_matmul(stream_,
                   {.rows = permuted, .counts = rows.expert_counts, .weights = bank_.gate_up(layer), .out = activated});
  }
  const MatmulRows down_rows = quantize(activated);
  const Span span(Zone::kGroupedDown, num_rows, num_experts);
  grouped_matmul(stream_, {.rows = down_rows, .counts = rows.expert_counts, .weights = bank_.down(layer), .out = out});
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
  if (!bank_.is_quantized()) return {activated};
  const MatrixView codes = codes_.top(activated.rows);
  quantize_rows(stream_, {.zone = Zone::kExpertQuantize, .x = activated, .codes = codes, .scales = scales_.data()});
  return {codes, scales_.data()};
}

}  // namespace ferry

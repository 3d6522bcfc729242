#include "moe/grouped_ffn.h"

#include <algorithm>

#include "profiler/span.h"

namespace ferry {

GroupedFfn::GroupedFfn(const ExpertBank& bank, Stream& stream, DType dtype, int64_t max_rows)
    : bank_(bank),
      stream_(stream),
      permuted_(bank.row_dtype(dtype), max_rows, row_cols(bank.row_dtype(dtype), bank.dims().hidden_dim)),
      permuted_scales_(static_cast<std::size_t>(max_rows)),
      activated_(dtype, max_rows, bank.dims().intermediate_dim),
      quantized_(bank.is_quantized() ? QuantizedRows(max_rows, bank.dims().intermediate_dim) : QuantizedRows()) {}

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
  gather_rows(stream_, {.zone = Zone::kPermute, .x = rows.tokens.x, .row_idx = rows.row_token, .out = permuted});
  if (rows.tokens.scales == nullptr) return {permuted};
  for (std::size_t r = 0; r < rows.row_token.size(); ++r) {
    permuted_scales_[r] = rows.tokens.scales[rows.row_token[r]];
  }
  return {permuted, permuted_scales_.data()};
}

MatmulRows GroupedFfn::quantize(MatrixView activated) {
  if (!bank_.is_quantized()) return {activated};
  const MatrixView codes = quantized_.values.top(activated.rows);
  quantize_rows(stream_, {.zone = Zone::kExpertQuantize, .x = activated, .codes = codes, .scales = quantized_.scales.data()});
  return {codes, quantized_.scales.data()};
}

}  // namespace ferry

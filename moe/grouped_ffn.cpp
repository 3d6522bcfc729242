#include "moe/grouped_ffn.h"

#include <algorithm>

#include "profiler/span.h"

namespace ferry {

GroupedFfn::GroupedFfn(const ExpertBank& bank, MatmulBackend& matmul, KernelContext context, DType dtype, int64_t max_rows)
    : bank_(bank),
      matmul_(matmul),
      context_(context),
      permuted_(dtype, max_rows, bank.dims().hidden_dim),
      gate_up_(dtype, max_rows, 2 * bank.dims().intermediate_dim),
      activated_(dtype, max_rows, bank.dims().intermediate_dim) {}

void GroupedFfn::run(int64_t layer, const ExpertRows& rows, MatrixView out) {
  const auto num_rows = static_cast<int64_t>(rows.row_token.size());
  FERRY_CHECK(layer >= 0 && layer < bank_.num_layers()) << " layer " << layer;
  FERRY_CHECK_LE(num_rows, permuted_.rows());
  FERRY_CHECK_EQ(static_cast<int64_t>(rows.expert_counts.size()), bank_.num_local_experts());
  if (num_rows == 0) return;
  const MatrixView permuted = permuted_.top(num_rows);
  const MatrixView gate_up = gate_up_.top(num_rows);
  const MatrixView activated = activated_.top(num_rows);
  const auto num_experts = std::ranges::count_if(rows.expert_counts, [](int32_t count) { return count > 0; });
  gather_rows(context_, {.zone = Zone::kPermute, .x = rows.tokens, .row_idx = rows.row_token, .out = permuted});
  {
    const Span span(Zone::kGroupedGateUp, num_rows, num_experts);
    matmul_.grouped_matmul(*context_.pool,
                           {.x = permuted, .counts = rows.expert_counts, .weights = bank_.gate_up(layer), .out = gate_up});
  }
  swiglu(context_, {.zone = Zone::kExpertSwiglu, .gate_up = gate_up, .out = activated});
  const Span span(Zone::kGroupedDown, num_rows, num_experts);
  matmul_.grouped_matmul(*context_.pool,
                         {.x = activated, .counts = rows.expert_counts, .weights = bank_.down(layer), .out = out});
}

}  // namespace ferry

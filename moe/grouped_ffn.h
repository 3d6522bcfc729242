#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/matmul.h"
#include "moe/expert_bank.h"

namespace ferry {

/// One layer's routed tokens as a rank sees them.
struct ExpertRows {
  MatmulRows tokens;                       // [num_tokens, hidden_dim] values, or codes where the experts are quantised
  std::span<const int32_t> row_token;      // [num_rows] expert-major: the token of each row
  std::span<const int32_t> expert_counts;  // [num_experts] sum = num_rows
};

/// permute -> grouped matmul gate+up with SwiGLU -> grouped matmul down, on one rank; rows of quantised experts are quantised
/// again in between. Owns its intermediate rows, sized at start.
class GroupedFfn {
 public:
  /// Of experts of these widths and this weight type. `max_rows` is the largest sum of expert_counts that a step may bring.
  GroupedFfn(const ExpertDims& dims, WeightType type, Stream& stream, DType dtype, int64_t max_rows);

  /// out [num_rows, hidden_dim], in the order of row_token; `rows` counts those of each of `experts`. One thread at a time.
  void run(const LayerExperts& experts, const ExpertRows& rows, MatrixView out);

 private:
  MatmulRows permute(const ExpertRows& rows);
  MatmulRows quantize(MatrixView activated);

  const bool is_quantized_;
  Stream& stream_;
  Matrix permuted_;               // [max_rows, hidden_dim], or codes
  Array<float> permuted_scales_;  // [max_rows], of codes
  Matrix activated_;              // [max_rows, intermediate_dim]
  Matrix codes_;                  // [max_rows, quantized_cols(intermediate_dim)] of the same, for quantised experts
  Array<float> scales_;           // [max_rows] of these
};

}  // namespace ferry

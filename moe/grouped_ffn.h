#pragma once

#include <cstdint>
#include <span>

#include "kernels/matmul.h"
#include "moe/expert_bank.h"

namespace ferry {

/// One layer's routed tokens as a rank sees them.
struct ExpertRows {
  ConstMatrixView tokens;                  // [num_tokens, hidden_dim]
  std::span<const int32_t> row_token;      // [num_rows] expert-major: the token of each row
  std::span<const int32_t> expert_counts;  // [num_local_experts] sum = num_rows
};

/// permute -> grouped matmul gate+up -> SwiGLU -> grouped matmul down, on one rank. Owns its intermediate rows, sized at start.
class GroupedFfn {
 public:
  /// `max_rows` is the largest sum of expert_counts that a step may bring.
  GroupedFfn(const ExpertBank& bank, MatmulBackend& matmul, KernelContext context, DType dtype, int64_t max_rows);

  /// out [num_rows, hidden_dim], in the order of row_token. One thread at a time.
  void run(int64_t layer, const ExpertRows& rows, MatrixView out);

 private:
  const ExpertBank& bank_;
  MatmulBackend& matmul_;
  KernelContext context_;
  Matrix permuted_;   // [max_rows, hidden_dim]
  Matrix gate_up_;    // [max_rows, 2 * intermediate_dim]
  Matrix activated_;  // [max_rows, intermediate_dim]
};

}  // namespace ferry

#pragma once

#include <cstdint>
#include <memory>

#include "kernels/stream.h"
#include "kernels/tensor.h"
#include "moe/expert_bank.h"
#include "moe/grouped_ffn.h"

namespace ferry {

/// What an expert makes of one fixed row, as a number: the same on every rank that holds the same weights and computes with the
/// same kernels (voice_of). It reads all of the expert's weights, as a real row does.
class ExpertCanary {
 public:
  /// `dtype` of rows that come back from experts. `stream` outlives this, and is used by one thread at a time.
  ExpertCanary(const ExpertDims& dims, WeightType type, DType dtype, Stream& stream);

  /// XXH3 (64 bits) of the bytes of the expert's row.
  uint64_t sing(const PackedExpert& expert);

 private:
  Stream& stream_;
  GroupedFfn ffn_;
  Matrix row_;           // [1, hidden_dim] values, or [1, quantized_cols(hidden_dim)] codes
  Array<float> scales_;  // [1], of codes
  Matrix out_;           // [1, hidden_dim]
};

}  // namespace ferry

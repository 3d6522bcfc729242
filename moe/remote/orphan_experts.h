#pragma once

#include <cstdint>

#include "moe/grouped_ffn.h"

namespace ferry {

/// The way out where no worker answers for an expert: any expert of the model, computed on this rank. Slow the first time,
/// since it is read then; with the bits of any other holder.
class OrphanExperts {
 public:
  virtual ~OrphanExperts() = default;

  /// out [num_rows, hidden_dim] in the stream's memory, in the order of rows.row_token; `rows` counts those of each of the
  /// layer's experts, [num_experts]. Throws Error{kResourceExhausted} if there is no memory for them, {kInvalidArgument} and
  /// {kNotFound} if the checkpoint cannot be read any more.
  virtual void run(int64_t layer, const ExpertRows& rows, MatrixView out) = 0;
};

}  // namespace ferry

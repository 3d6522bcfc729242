#pragma once

#include <cstdint>
#include <vector>

#include "profiler/zones.h"
#include "runtime/checkpoint/quantization.h"
#include "runtime/model/config.h"

namespace ferry {

/// The matrices of a part of the decoder, all layers together; norms and other vectors, a ten-thousandth of it, do not count.
struct PartFootprint {
  Part part = Part::kOther;
  int64_t parameters = 0;
  int64_t active_parameters = 0;  // that one token passes
  double bytes = 0;               // packed, in the run's dtype or quantised
};

/// By part, those that the model has; kHead is lm_head alone. `dtype` is the run's. Of the embedding see
/// embedding_parameters().
std::vector<PartFootprint> decoder_footprint(const ModelConfig& config, const Quantization& quantization, DType dtype);

/// vocab_size x hidden_dim; a token reads one row of it.
int64_t embedding_parameters(const ModelConfig& config);

/// Bytes of packed weights on a rank: all parts of the coordinator but the routed experts, which it has only without workers;
/// and those of the worker that holds most.
struct RankFootprint {
  double coordinator_bytes = 0;
  double worker_bytes = 0;
};
RankFootprint rank_footprint(const ModelConfig& config, const Quantization& quantization, DType dtype, int64_t num_workers);

/// What the MTP layer, where it is loaded, adds to them.
RankFootprint mtp_footprint(const ModelConfig& config, const Quantization& quantization, DType dtype, int64_t num_workers);

}  // namespace ferry

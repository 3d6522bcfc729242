#include "runtime/model/footprint.h"

#include <algorithm>

#include "runtime/checkpoint/packed_checkpoint.h"
#include "runtime/model/operators.h"

namespace ferry {
namespace {

/// Weights of one layer's operator, from the shape of its second input; of an expert's for a grouped product. 0: not a product.
int64_t matrix_weights(const OperatorFacts& facts) {
  const bool is_product =
      facts.factors != Factors::kNone && facts.inputs.size() >= 2 && zone_info(facts.zone).part != Part::kHead;
  if (!is_product && facts.zone != Zone::kLmHead) return 0;
  int64_t weights = 1;
  for (const TensorDim& dim : facts.inputs[1].dims) {
    if (dim.kind == TensorDim::Kind::kRows || dim.kind == TensorDim::Kind::kKeys) return 0;  // rows of a cache or a step
    if (dim.kind == TensorDim::Kind::kFixed) weights *= dim.size;
  }
  return weights;
}

/// Of one matrix that is held as codes, from the shape of a product's second input: the panels with their scales and padding.
double panel_bytes(const OperatorFacts& facts, const Quantization& quantization) {
  const Part part = zone_info(facts.zone).part;
  const bool is_shared = part == Part::kSharedExpert || part == Part::kDenseFfn;
  const std::optional<WeightType>& type = part == Part::kExperts ? quantization.experts
                                          : is_shared            ? quantization.shared
                                          : part == Part::kHead  ? quantization.lm_head
                                                                 : quantization.mixers;
  const std::vector<TensorDim>& dims = facts.inputs[1].dims;  // those of experts begin with their number
  const int64_t k = dims[dims.size() - 2].size, n = dims.back().size;
  const bool is_gated = n == 2 * facts.outputs[0].dims.back().size;
  const PanelShape shape{n, k, *with_group_size(type, k), is_gated ? WeightUse::kGated : WeightUse::kPlain};
  return static_cast<double>(shape.bytes());
}

/// As an integer; what only a made-up config can ask for is cut off, so that no sum overflows.
int64_t count(double parameters) {
  constexpr double kMost = 1e16;
  return static_cast<int64_t>(std::min(parameters, kMost));
}

PartFootprint& part_of(std::vector<PartFootprint>& parts, Part part) {
  const auto found = std::find_if(parts.begin(), parts.end(), [part](const PartFootprint& p) { return p.part == part; });
  if (found != parts.end()) return *found;
  return parts.emplace_back(PartFootprint{.part = part});
}

/// Of the operators that are of the MTP layer, which has no head of its own, or of those that are not.
std::vector<PartFootprint> footprint_of(const ModelConfig& config, const Quantization& quantization, DType dtype, bool is_mtp) {
  std::vector<PartFootprint> parts;
  for (const OperatorFacts& facts : describe_operators(config, quantization, dtype, dtype)) {
    const int64_t weights = matrix_weights(facts);
    if (weights == 0 || facts.zone == (is_mtp ? Zone::kLmHead : Zone::kMtpFc)) continue;
    const bool is_routed = zone_info(facts.zone).part == Part::kExperts;
    const double copies = static_cast<double>(facts.num_layers * (is_routed ? config.moe.num_experts : 1));
    const double passed = is_routed ? static_cast<double>(facts.num_layers * config.moe.top_k) : copies;
    PartFootprint& part = part_of(parts, zone_info(facts.zone).part);
    part.parameters += count(copies * static_cast<double>(weights));
    part.active_parameters += count(passed * static_cast<double>(weights));
    const bool is_in_codes = facts.inputs[1].type != facts.inputs[0].type;
    part.bytes += copies * (is_in_codes ? panel_bytes(facts, quantization) : is_routed ? facts.bytes.per_b : facts.bytes.fixed);
  }
  return parts;
}

RankFootprint share_out(const std::vector<PartFootprint>& parts, const ModelConfig& config, int64_t num_workers) {
  RankFootprint ranks;
  for (const PartFootprint& part : parts) {
    if (part.part != Part::kExperts || num_workers == 0) {
      ranks.coordinator_bytes += part.bytes;
    } else {
      const int64_t most = (config.moe.num_experts + num_workers - 1) / num_workers;
      ranks.worker_bytes += part.bytes * static_cast<double>(most) / static_cast<double>(config.moe.num_experts);
    }
  }
  return ranks;
}

}  // namespace

std::vector<PartFootprint> decoder_footprint(const ModelConfig& config, const Quantization& quantization, DType dtype) {
  return footprint_of(config, quantization, dtype, /*is_mtp=*/false);
}

int64_t embedding_parameters(const ModelConfig& config) { return config.vocab_size * config.hidden_dim; }

RankFootprint rank_footprint(const ModelConfig& config, const Quantization& quantization, DType dtype, int64_t num_workers) {
  return share_out(decoder_footprint(config, quantization, dtype), config, num_workers);
}

RankFootprint mtp_footprint(const ModelConfig& config, const Quantization& quantization, DType dtype, int64_t num_workers) {
  ModelConfig alone = config;
  alone.layers = {config.mtp_plan()};
  alone.mtp = true;
  return share_out(footprint_of(alone, quantization, dtype, /*is_mtp=*/true), config, num_workers);
}

}  // namespace ferry

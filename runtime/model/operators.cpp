#include "runtime/model/operators.h"

#include "runtime/model/ffn/dense.h"
#include "runtime/model/ffn/mixture_of_experts.h"
#include "runtime/model/mixers/attention.h"
#include "runtime/model/mixers/gated_delta.h"
#include "runtime/model/mixers/short_conv.h"
#include "runtime/model/operator_list.h"

namespace ferry {
namespace {

constexpr double kNormFlop = 4;  // an element: a convention for what has a square root in it, not a measurement

/// What is before and behind the layers.
void describe_ends(const ModelConfig& c, OperatorList& list) {
  const double act = list.activation_bytes();
  list.in_layers(1);
  list.add({.zone = Zone::kEmbedding,
            .bytes = {.per_row = 2 * as_double(c.hidden_dim) * act},
            .inputs = {list.activation({c.vocab_size, c.hidden_dim}), OperatorList::indices({OperatorList::kRows})},
            .outputs = {list.activation({OperatorList::kRows, c.hidden_dim})}});
  list.norm(Zone::kFinalNorm, c.hidden_dim, kNormFlop);
  list.elementwise(Zone::kGatherRows, c.hidden_dim, 0, 1);
  list.product(Zone::kLmHead, c.hidden_dim, c.vocab_size, list.quantization().lm_head);
  if (c.mtp) list.product(Zone::kMtpFc, 2 * c.hidden_dim, c.hidden_dim);
  list.add({.zone = Zone::kSample,
            .flop = {.per_row = as_double(c.vocab_size)},
            .bytes = {.per_row = as_double(c.vocab_size) * act},
            .inputs = {list.activation({OperatorList::kRows, c.vocab_size})},
            .outputs = {OperatorList::indices({OperatorList::kRows})}});
}

/// What every layer has.
void describe_blocks(const ModelConfig& c, OperatorList& list) {
  list.in_layers(c.num_layers());
  list.norm(Zone::kInputNorm, c.hidden_dim, kNormFlop);
  list.norm(Zone::kPostAttentionNorm, c.hidden_dim, kNormFlop);
  list.elementwise(Zone::kAdd, c.hidden_dim, 1, 2);
  list.quantize(Zone::kQuantizeRows, c.hidden_dim);
}

}  // namespace

std::vector<OperatorFacts> describe_operators(const ModelConfig& config, const Quantization& quantization, DType dtype,
                                              DType kv_dtype) {
  OperatorList list(dtype, quantization, kv_dtype);
  describe_ends(config, list);
  describe_blocks(config, list);
  list.in_layers(config.num_layers_of(Mixer::kGatedDelta));
  if (config.num_layers_of(Mixer::kGatedDelta) > 0) GatedDeltaMixer::describe(config, list);
  list.in_layers(config.num_layers_of(Mixer::kAttention));
  if (config.num_layers_of(Mixer::kAttention) > 0) AttentionMixer::describe(config, list);
  list.in_layers(config.num_layers_of(Mixer::kShortConv));
  if (config.num_layers_of(Mixer::kShortConv) > 0) ShortConvMixer::describe(config, list);
  list.in_layers(config.num_layers_of(Ffn::kDense));
  if (config.num_layers_of(Ffn::kDense) > 0) DenseFfn::describe(config, list);
  list.in_layers(config.num_layers_of(Ffn::kMixtureOfExperts));
  if (config.num_layers_of(Ffn::kMixtureOfExperts) > 0) MixtureOfExperts::describe(config, list);
  return list.take();
}

Quantization with_screened_head(const Quantization& quantization) {
  Quantization counted = quantization;
  counted.lm_head = WeightType{WeightFormat::kInt8};
  return counted;
}

}  // namespace ferry

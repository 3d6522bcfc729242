#pragma once

#include <vector>

#include "runtime/model/config_fields.h"
#include "runtime/model/layer_plan.h"

// Keys of config.json that several families write alike. All throw as ConfigFields does.

namespace ferry {

/// num_attention_heads, num_key_value_heads, head_dim (if absent: `default_head_dim`) and the rotary keys: rope_parameters, or
/// rope_theta beside them in older files; partial_rotary_factor in either place (if absent: `default_rotary_share`).
AttentionPlan read_attention(const ConfigFields& text, int64_t default_head_dim, double default_rotary_share);

/// The linear_* keys.
GatedDeltaPlan read_gated_delta(const ConfigFields& text);

/// num_experts (or num_local_experts), num_experts_per_tok and moe_intermediate_size.
MoePlan read_experts(const ConfigFields& text);

/// num_hidden_layers
int64_t read_num_layers(const ConfigFields& text);

/// One mixer a layer, of num_hidden_layers: layer_types, each "full_attention" or `other_name`; if absent, every
/// full_attention_interval-th is attention. `other` is what `other_name` stands for.
std::vector<LayerPlan> read_layer_types(const ConfigFields& text, const char* other_name, Mixer other);

/// Makes those layers mixtures of experts that decoder_sparse_step and mlp_only_layers say; the others are dense.
void read_sparse_layers(const ConfigFields& text, std::vector<LayerPlan>& layers);

}  // namespace ferry

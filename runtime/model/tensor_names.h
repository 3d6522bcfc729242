#pragma once

namespace ferry {

/// Where a checkpoint has the tensors of its decoder, as data. Names of the model follow its prefix ("model." or
/// "model.language_model."), names of a layer follow "layers.N.". A matrix or a norm ends in ".weight" beside; where that is
/// not so, it is said. nullptr: the architecture has no such tensor.
struct TensorNames {
  const char* final_norm = "norm";
  const char* mixer_norm = "input_layernorm";
  const char* ffn_norm = "post_attention_layernorm";

  struct Attention {
    const char* q_proj = "self_attn.q_proj";
    const char* k_proj = "self_attn.k_proj";
    const char* v_proj = "self_attn.v_proj";
    const char* o_proj = "self_attn.o_proj";
    const char* q_norm = "self_attn.q_norm";
    const char* k_norm = "self_attn.k_norm";
  } attention;

  struct GatedDelta {
    const char* in_proj_qkv = "linear_attn.in_proj_qkv";
    const char* in_proj_z = "linear_attn.in_proj_z";
    const char* in_proj_b = "linear_attn.in_proj_b";
    const char* in_proj_a = "linear_attn.in_proj_a";
    const char* merged_qkvz = nullptr;  // in place of qkv and z: per key head its rows of q, k, v and z
    const char* merged_ba = nullptr;    // in place of b and a: per key head its rows of b and a
    const char* conv1d = "linear_attn.conv1d";
    const char* a_log = "linear_attn.A_log";      // the whole name
    const char* dt_bias = "linear_attn.dt_bias";  // likewise
    const char* norm = "linear_attn.norm";
    const char* out_proj = "linear_attn.out_proj";
  } gated_delta;

  struct ShortConv {
    const char* in_proj = "conv.in_proj";  // rows of B, C and X
    const char* conv = "conv.conv";
    const char* out_proj = "conv.out_proj";
  } short_conv;

  /// A dense network, and likewise each routed expert behind `experts`.
  struct Ffn {
    const char* gate = "mlp.gate_proj";
    const char* up = "mlp.up_proj";
    const char* down = "mlp.down_proj";
  } dense;

  /// The MTP layer: whole names, but for ".weight".
  struct Mtp {
    const char* fc = "mtp.fc";
    const char* embedding_norm = "mtp.pre_fc_norm_embedding";
    const char* hidden_norm = "mtp.pre_fc_norm_hidden";
    const char* norm = "mtp.norm";
    const char* layer = "mtp.layers.0.";  // in front of the names of a layer
  } mtp;

  struct Moe {
    const char* router = "mlp.gate";
    const char* bias = nullptr;  // of the router; the whole name
    const char* experts = "mlp.experts.";
    Ffn expert{"gate_proj", "up_proj", "down_proj"};  // behind experts and "E."
    const char* packed_gate_up = "gate_up_proj";      // of all experts in one; behind experts; the whole name
    const char* packed_down = "down_proj";            // likewise
    Ffn shared{"mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj", "mlp.shared_expert.down_proj"};
    const char* shared_gate = "mlp.shared_expert_gate";  // [1, hidden]
  } moe;
};

}  // namespace ferry

#pragma once

#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/memory.h"
#include "runtime/checkpoint/quantization.h"

// The weights of a decoder, one field a tensor, with the shape that the forward pass sees. Matrices are packed for the chosen
// matrix product; vectors are small and held in f32 (exact for bf16 values). Weights of norms are factors, however they are
// stored. Checkpoint names are data in architectures/.

namespace ferry {

using PackedPtr = std::unique_ptr<PackedMatrix>;

struct GatedDeltaWeights {
  PackedPtr in_proj_qkv;           // [2 * key_dim + value_dim, hidden]
  PackedPtr in_proj_z;             // [value_dim, hidden]
  PackedPtr in_proj_b;             // [num_v_heads, hidden]
  PackedPtr in_proj_a;             // [num_v_heads, hidden]
  Array<float> conv1d;             // [conv_channels, kernel]
  Array<float> a_log;              // [num_v_heads]
  Array<float> dt_bias;            // [num_v_heads]
  Array<float> norm;               // [v_dim]
  DType norm_dtype = DType::kF32;  // as stored
  PackedPtr out_proj;              // [hidden, value_dim]
};

struct AttentionWeights {
  PackedPtr q_proj;     // [q_proj_dim, hidden]: with a gate, per head query rows, then gate rows
  PackedPtr k_proj;     // [num_kv_heads * head_dim, hidden]
  PackedPtr v_proj;     // likewise
  Array<float> q_norm;  // [head_dim]
  Array<float> k_norm;  // likewise
  PackedPtr o_proj;     // [hidden, num_heads * head_dim]
};

struct ShortConvWeights {
  PackedPtr in_proj;    // [3 * channels, hidden]: rows of B, C and X
  Array<float> conv1d;  // [channels, kernel]
  PackedPtr out_proj;   // [hidden, channels]
};

struct DenseWeights {
  PackedPtr gate_up;  // [2 * intermediate_dim, hidden] gated: gate rows, then up rows
  PackedPtr down;     // [hidden, intermediate_dim]
};

/// The part of a mixture that every token passes; routed experts, or slices, are in an ExpertBank.
struct MoeWeights {
  PackedPtr router;              // [num_experts, hidden]; null for slices
  Array<float> bias;             // [num_experts] of the router, or empty
  PackedPtr shared_gate_up;      // [2 * shared_intermediate_dim, hidden] gated; null without a shared expert, so the next two
  PackedPtr shared_down;         // [hidden, shared_intermediate_dim]
  PackedPtr shared_expert_gate;  // [1, hidden]
};

struct LayerWeights {
  Array<float> mixer_norm;  // [hidden]
  Array<float> ffn_norm;    // likewise
  std::variant<GatedDeltaWeights, AttentionWeights, ShortConvWeights> mixer;
  std::variant<DenseWeights, MoeWeights> ffn;
};

/// The layer that guesses the token after the next: what it reads is fc([norm(embedding of the next token), norm(hidden)]).
struct MtpWeights {
  Array<float> embedding_norm;  // [hidden]
  Array<float> hidden_norm;     // likewise
  PackedPtr fc;                 // [hidden, 2 * hidden]
  LayerWeights layer;
  Array<float> norm;  // [hidden], the last one
};

struct TrunkWeights {
  Quantization quantization;     // what of the below is held as integers, and the routed experts
  ConstMatrixView embed_tokens;  // [vocab, hidden], in the mapped file unless owned_embedding holds a copy
  Matrix owned_embedding;
  std::vector<LayerWeights> layers;
  Array<float> norm;  // [hidden], the last one
  PackedPtr lm_head;  // [vocab, hidden]
  std::optional<MtpWeights> mtp;
};

}  // namespace ferry

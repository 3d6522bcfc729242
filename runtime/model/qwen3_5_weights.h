#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "kernels/matmul.h"
#include "moe/expert_bank.h"
#include "moe/expert_map.h"
#include "runtime/checkpoint/checkpoint_packer.h"
#include "runtime/checkpoint/packed_checkpoint.h"
#include "runtime/checkpoint/quantization.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/tensor_reader.h"
#include "runtime/model/config.h"

// The weights of a Qwen3.5-MoE text decoder, one field a tensor, with the shape that the forward pass sees. Matrices are packed
// for the chosen matrix product; vectors are small and held in f32 (exact for bf16 values). Checkpoint names are in the .cpp,
// as data.

namespace ferry {

using PackedPtr = std::unique_ptr<PackedMatrix>;

struct DeltaNetWeights {
  PackedPtr in_proj_qkv;           // [2 * key_dim + value_dim, hidden]
  PackedPtr in_proj_z;             // [value_dim, hidden]
  PackedPtr in_proj_b;             // [num_v_heads, hidden]
  PackedPtr in_proj_a;             // [num_v_heads, hidden]
  std::vector<float> conv1d;       // [conv_channels, kernel]
  std::vector<float> a_log;        // [num_v_heads]
  std::vector<float> dt_bias;      // [num_v_heads]
  std::vector<float> norm;         // [v_dim], plain
  DType norm_dtype = DType::kF32;  // as stored
  PackedPtr out_proj;              // [hidden, value_dim]
};

struct AttentionWeights {
  PackedPtr q_proj;           // [num_heads * 2 * head_dim, hidden]: per head query rows, then gate rows
  PackedPtr k_proj;           // [num_kv_heads * head_dim, hidden]
  PackedPtr v_proj;           // likewise
  std::vector<float> q_norm;  // [head_dim], offset from one
  std::vector<float> k_norm;  // likewise
  PackedPtr o_proj;           // [hidden, num_heads * head_dim]
};

/// The part of a MoE block that every token passes; routed experts are in an ExpertBank.
struct MoeWeights {
  PackedPtr router;              // [num_experts, hidden]
  PackedPtr shared_gate_up;      // [2 * shared_intermediate_dim, hidden] gated: gate rows, then up rows
  PackedPtr shared_down;         // [hidden, shared_intermediate_dim]
  PackedPtr shared_expert_gate;  // [1, hidden]
};

struct LayerWeights {
  std::vector<float> input_norm;           // [hidden], offset from one
  std::vector<float> post_attention_norm;  // likewise
  std::variant<DeltaNetWeights, AttentionWeights> mixer;
  MoeWeights moe;
};

struct TrunkWeights {
  Quantization quantization;     // what of the below is held as integers, and the routed experts
  ConstMatrixView embed_tokens;  // [vocab, hidden], in the mapped file unless owned_embedding holds a copy
  Matrix owned_embedding;
  std::vector<LayerWeights> layers;
  std::vector<float> norm;  // [hidden], offset from one
  PackedPtr lm_head;        // [vocab, hidden]
};

/// How weights are read.
struct LoadOptions {
  DType dtype = DType::kBF16;                        // of the run; weights stored otherwise are converted
  WeightPlan weights;                                // what is quantised, and whether it is packed already
  bool check_finite = false;                         // refuse NaN and infinity, naming tensor and element
  std::function<void(int64_t done_bytes)> progress;  // called now and then from the loading thread; may be empty
};

/// Reads everything but the routed experts. Throws Error{kInvalidArgument} for a tensor that is missing, has another shape or
/// a type that is neither F32 nor BF16, or that nothing in the config accounts for (mtp.* and the vision tower aside).
/// `checkpoint` must outlive the result (the embedding and panels stay in the mapped file). Calls pool.
TrunkWeights load_trunk(const Checkpoint& checkpoint, const ModelConfig& config, MatmulBackend& matmul, ThreadPool& pool,
                        const LoadOptions& options);

/// Reads the routed experts of ranks()[rank_idx] and touches no other expert's pages. Throws as load_trunk does, and
/// `checkpoint` must outlive the result likewise.
ExpertBank load_experts(const Checkpoint& checkpoint, const ModelConfig& config, const ExpertMap& map, int32_t rank_idx,
                        MatmulBackend& matmul, ThreadPool& pool, const LoadOptions& options);

/// The matrices that `quantization` makes integers: the trunk's, then the experts' by layer, each expert's gates and ups before
/// its down. Throws as load_trunk does, and for rows that cannot be quantised. `reader` reads `checkpoint`.
std::vector<StoredMatrix> find_quantized(const Checkpoint& checkpoint, const ModelConfig& config,
                                         const Quantization& quantization, TensorReader& reader);

/// find_quantized() of the checkpoint in `dir`, whose config is read when it is called: for pack_checkpoint.
FindMatrices quantized_matrices(const std::filesystem::path& dir, const Quantization& quantization);

}  // namespace ferry

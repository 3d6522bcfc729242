#pragma once

#include <array>
#include <cstdint>
#include <optional>

// A decoder as data: what each layer is made of, and the widths that all layers of a kind share. An architecture's page
// (architectures/) fills this in from config.json; loader, trunk, caches and instruments read nothing else.
//
//   x = embedding
//   x = x + mixer(norm(x));  x = x + ffn(norm(x))     for every layer
//   logits = lm_head(norm(x))

namespace ferry {

enum class Mixer : uint8_t { kGatedDelta, kAttention, kShortConv };
inline constexpr std::array kMixers{Mixer::kGatedDelta, Mixer::kAttention, Mixer::kShortConv};
enum class Ffn : uint8_t { kDense, kMixtureOfExperts };

struct LayerPlan {
  Mixer mixer = Mixer::kAttention;
  Ffn ffn = Ffn::kDense;
  bool operator==(const LayerPlan&) const = default;
};

/// As captures and reports call a layer: "linear_attention", "full_attention", "short_conv".
const char* mixer_name(Mixer mixer);

/// Every RMS norm of a model, but that within a gated delta layer. In memory all weights are factors.
struct NormPlan {
  float eps = 0;
  bool is_offset = false;     // stored as what is to be added to one
  bool rounds_first = false;  // the normed value is rounded to the run's dtype before it is multiplied by the weight
};

/// Softmax attention over all earlier tokens, heads of queries sharing those of keys and values, all heads normed.
struct AttentionPlan {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;  // divides num_heads
  int64_t head_dim = 0;
  int64_t rotary_dim = 0;  // even, <= head_dim
  double rope_theta = 0;
  std::array<int64_t, 3> mrope_section{};  // frequencies of the time, height and width axes; all zero: plain rotary positions
  bool has_gate = false;  // q_proj has, behind the query rows of each head, as many of a gate whose sigmoid its output takes

  int64_t query_dim() const { return num_heads * head_dim; }
  int64_t key_dim() const { return num_kv_heads * head_dim; }
  /// Rows of q_proj.
  int64_t q_proj_dim() const { return has_gate ? 2 * query_dim() : query_dim(); }
};

/// Gated DeltaNet (arXiv 2412.06464): projections, a convolution with SiLU, the gated delta rule, a gated norm.
struct GatedDeltaPlan {
  int64_t num_k_heads = 0;
  int64_t num_v_heads = 0;  // a multiple of num_k_heads
  int64_t k_dim = 0;
  int64_t v_dim = 0;
  int64_t conv_kernel = 0;

  int64_t key_dim() const { return num_k_heads * k_dim; }
  int64_t value_dim() const { return num_v_heads * v_dim; }
  int64_t conv_channels() const { return 2 * key_dim() + value_dim(); }
};

/// Gated short convolution: in_proj gives B, C and X of `channels` each; out_proj(C * conv(B * X)), no activation.
struct ShortConvPlan {
  int64_t channels = 0;
  int64_t conv_kernel = 0;
};

/// down(silu(gate(x)) * up(x))
struct DensePlan {
  int64_t intermediate_dim = 0;
};

enum class RouterScore : uint8_t { kSoftmax, kSigmoid };

/// How logits of experts become the weights of a token's best.
struct RouterPlan {
  RouterScore score = RouterScore::kSoftmax;
  bool has_bias = false;      // the choice, not the weights, is by score + bias [num_experts]
  bool is_normalised = true;  // weights are divided by their sum
  float sum_eps = 0;          // added to that sum
  float scale = 1;            // of all weights
};

/// Routed experts, each a small dense network, and one that every token passes, weighted by a scalar sigmoid gate. Or a dense
/// network cut along its inner columns, so that ranks can share it: down is linear, so the slices' outputs add up to its own.
struct MoePlan {
  int64_t num_experts = 0;
  int64_t top_k = 0;                    // <= num_experts
  int64_t intermediate_dim = 0;         // of one routed expert
  int64_t shared_intermediate_dim = 0;  // 0: no shared expert
  RouterPlan router;
  bool is_sliced = false;  // the experts are slices of a dense network: all chosen, in order, with weight 1; no router
};

/// `dense` in up to 8 slices, as many as are equally wide, hold whole blocks of `block_cols` columns (that share a scale where
/// the checkpoint is quantised; 1: none) and are multiples of 128 columns, or of 32 where that makes no two. Follows from the
/// shape alone, so that the number of ranks changes no sum. Absent if there are no two.
std::optional<MoePlan> slice(const DensePlan& dense, int64_t block_cols);

}  // namespace ferry

#pragma once

#include <cstdint>
#include <span>

#include "kernels/kv_layout.h"
#include "kernels/tensor.h"
#include "kernels/weight_format.h"
#include "profiler/zones.h"

// Every op of the decoder and of the vision tower that is not a matrix product (those are in matmul.h). One argument struct
// and one declaration an op. T below is the dtype of the activations, f32 or bf16: values are computed in fp32 and rounded to
// T where the comment says so, which is where transformers 5.17 rounds (modeling_qwen3_5_moe.py). Implementations: ref/
// (naive, serial, the oracle) and cpu/ (vector code, compiled for AVX2 and for AVX-512), of which the stream's backend chooses.
// Ops keep no state.
//
// Rule: the result for a row (a token, a head, a sequence) does not depend on which other rows are in the call, nor on
// the number of threads.

namespace ferry {

class Stream;

/// out[i] = table[ids[i]]
struct EmbedArgs {
  ConstMatrixView table;         // [vocab, hidden] f32 or bf16
  std::span<const TokenId> ids;  // [T]
  MatrixView out;                // [T, hidden] T; table values are converted
};

/// n = x / sqrt(mean(x^2) + eps), rounded to T if rounds_first; out = T(n * weight), per row.
struct RmsNormArgs {
  Zone zone = Zone::kInputNorm;  // what the trace calls it
  ConstMatrixView x;             // [rows, cols]
  Address<const float> weight;   // [cols]
  float eps;
  bool rounds_first = false;
  MatrixView out;  // [rows, cols] T, may be x
};

/// out = T(a + b)
struct AddArgs {
  ConstMatrixView a, b;  // [rows, cols]
  MatrixView out;        // [rows, cols], may be a or b
};

/// out = T(a * b)
struct MultiplyArgs {
  Zone zone = Zone::kConvGate;
  ConstMatrixView a, b;  // [rows, cols]
  MatrixView out;        // [rows, cols], may be a or b
};

/// DeltaNet's output norm, norm before gate: n = T(x / sqrt(mean(x^2) + eps)); m = weight * n, rounded to T if weight_dtype is
/// T; out = T(m * silu(gate)).
struct GatedRmsNormArgs {
  ConstMatrixView x;            // [rows, cols], one row a (token, value head)
  ConstMatrixView gate;         // [rows, cols]
  Address<const float> weight;  // [cols], plain (not an offset from one)
  DType weight_dtype;           // as stored in the checkpoint
  float eps;
  MatrixView out;  // [rows, cols], may be x
};

/// Rotates the first rotary_dim elements of every head in place (split halves): for j < half:
/// x'_j = T(T(x_j c_j) - T(x_{j+half} s_j)), x'_{j+half} = T(T(x_{j+half} c_j) + T(x_j s_j)). The rest stays.
struct RopeArgs {
  MatrixView x;  // [T, num_heads * head_dim]
  int64_t head_dim;
  int64_t rotary_dim;        // even, <= head_dim
  Address<const float> cos;  // [T, rotary_dim / 2], already rounded to T
  Address<const float> sin;  // likewise
};

/// How the gated delta rule takes a sequence's rows.
enum class DeltaForm : uint8_t {
  kChunk,      // pieces of rows in parallel: prompts
  kRecurrent,  // row by row: each has the bits that it would have as the only row of its step
};

/// One sequence's rows in a step: `num_tokens` rows of the batch from `first_row`, preceded by `num_past` tokens in its caches.
/// The last rows of the recurrent form may be drafts, which turn out right or wrong after the step: the states (of
/// convolutions and delta rules) do not take them in, and the next step says how many of them were right.
struct SequenceSpan {
  int64_t first_row = 0;
  int64_t num_tokens = 0;
  int64_t num_past = 0;
  DeltaForm form = DeltaForm::kChunk;
  int64_t num_replayed = 0;  // rows that the last step held back and that turned out right: the states take them in first
  int64_t num_held = 0;      // last rows that the states do not take in, < num_tokens

  int64_t num_taken() const { return num_tokens - num_held; }
};

/// Where the keys and values of one attention layer live: blocks of block_tokens tokens, for each key head a run of rows
/// (kv_layout.h).
struct KvLayerView {
  Address<std::byte> keys;    // [num_blocks, num_kv_heads] runs
  Address<std::byte> values;  // same
  DType dtype = DType::kF32;  // T, or i8: codes
  int64_t num_kv_heads = 0;
  int64_t block_tokens = 0;
  int64_t head_dim = 0;

  int64_t run_bytes() const { return kv_run_bytes(dtype, block_tokens, head_dim); }
};

/// Appends k and v rows of each sequence to its blocks, as they are or as codes.
struct KvAppendArgs {
  ConstMatrixView k, v;  // [T, num_kv_heads * head_dim] T
  KvLayerView cache;
  std::span<const SequenceSpan> sequences;
  std::span<const int32_t* const> block_tables;  // per sequence: block ids covering num_past + num_tokens tokens
};

/// Causal attention over the cache (which already holds this step's keys): softmax(q.k * head_dim^-0.5) v in fp32 (a weight of
/// a key may be two terms of bf16, to 2^-17), one rounding to T. Query head h reads kv head h / (num_heads / num_kv_heads).
struct AttentionArgs {
  ConstMatrixView q;  // [T, num_heads * head_dim] T
  KvLayerView cache;
  std::span<const SequenceSpan> sequences;
  std::span<const int32_t* const> block_tables;
  int64_t num_heads;
  MatrixView out;  // [T, num_heads * head_dim]
};

/// out = T(x * T(sigmoid(gate)))
struct SigmoidGateArgs {
  ConstMatrixView x;     // [rows, cols]
  ConstMatrixView gate;  // [rows, cols]
  MatrixView out;        // [rows, cols], may be x
};

enum class Activation : uint8_t { kNone, kSilu };

/// Depthwise causal convolution over time: y = T(sum_tau weight[ch, tau] * c_{t-K+1+tau}[ch]); out = y, or T(silu(y)).
/// Missing history is what `states` holds, the last K-1 inputs, oldest first, zeros for a new sequence, and behind them the
/// rows that are replayed. The states are updated in place, held rows left out.
struct CausalConv1dArgs {
  Zone zone = Zone::kCausalConv1d;
  ConstMatrixView x;            // [T, channels]
  Address<const float> weight;  // [channels, kernel]
  int64_t kernel;               // K >= 1
  Activation activation = Activation::kSilu;
  std::span<const SequenceSpan> sequences;
  std::span<std::byte* const> states;      // per sequence [kernel - 1, channels] T
  std::span<const std::byte* const> held;  // per sequence [num_replayed, channels] T; may be empty if none replays
  MatrixView out;                          // [T, channels], not x
};

/// decay = -exp(a_log) * softplus(a + dt_bias) in fp32 (softplus(x) = x for x > 20); beta = T(sigmoid(b)).
struct DeltaGatesArgs {
  ConstMatrixView a, b;          // [T, num_v_heads] T
  Address<const float> a_log;    // [num_v_heads]
  Address<const float> dt_bias;  // [num_v_heads]
  Address<float> decay;          // [T, num_v_heads], <= 0
  Address<float> beta;           // [T, num_v_heads]
};

/// Rows of a gated delta rule that a step held back.
struct HeldDeltaRows {
  Address<const std::byte> qkv;  // [num_replayed, columns of qkv] T
  Address<const float> decay;    // [num_replayed, num_v_heads]
  Address<const float> beta;     // likewise
};

/// The gated delta rule (arXiv 2412.06464). Per value head, with S [k_dim, v_dim] fp32, q and k l2-normalised in fp32 (eps
/// 1e-6 inside the root) and q scaled by k_dim^-0.5:
///   S <- e^decay S;  delta = beta (v - S^T k);  S <- S + k delta^T;  o = T(S^T q)
/// Spans of the recurrent form use this recurrence, replayed rows first; the others the chunk-parallel form over pieces of
/// `chunk` tokens counted from the span's first row. Value head h reads key head h / (num_v_heads / num_k_heads). Denormals may
/// count as zeros.
struct GatedDeltaRuleArgs {
  ConstMatrixView qkv;         // [T, 2 * num_k_heads * k_dim + num_v_heads * v_dim]: all q, all k, all v
  Address<const float> decay;  // [T, num_v_heads]
  Address<const float> beta;   // [T, num_v_heads]
  int64_t num_k_heads, num_v_heads, k_dim, v_dim;
  int64_t chunk;  // 1 ‥ 64 tokens
  std::span<const SequenceSpan> sequences;
  std::span<float* const> states;       // per sequence [num_v_heads, k_dim, v_dim], updated in place, held rows left out
  std::span<const HeldDeltaRows> held;  // per sequence; may be empty if none replays
  MatrixView out;                       // [T, num_v_heads * v_dim]
};

/// What a gated delta layer does between its projections: causal_conv1d, delta_gates, gated_delta_rule and gated_rms_norm one
/// after the other, each on the results of those before it: rule.qkv is conv.out, rule.decay and rule.beta are those of the
/// gates, norm.x and norm.out are rule.out's heads. The results between hold nothing afterwards, but those of held rows.
struct GatedDeltaMixArgs {
  CausalConv1dArgs conv;
  DeltaGatesArgs gates;
  GatedDeltaRuleArgs rule;
  GatedRmsNormArgs norm;
};

/// p = softmax(logits) in fp32, or T(sigmoid(logits)). Experts are chosen by p + bias: the top_k largest, descending, lower
/// expert id first on ties; weights = T(p_k / (sum p_k + sum_eps) * scale), without the division if they are not normalised.
struct RouterTopkArgs {
  ConstMatrixView logits;  // [T, num_experts]
  int64_t top_k;
  bool is_sigmoid = false;
  Address<const float> bias;  // [num_experts], or none
  bool is_normalised = true;
  float sum_eps = 0;
  float scale = 1;
  Address<int32_t> topk_idx;    // [T, top_k]
  Address<float> topk_weights;  // [T, top_k]
};

/// For each r of `rows`: ids[r] = the column of the largest value of row r, the lowest of equal ones (both zeros are equal), or
/// kNoToken where all are NaN or minus infinity. A NaN is never the largest. The other ids stay as they are.
struct ArgmaxArgs {
  ConstMatrixView x;              // [num_rows, cols]
  std::span<const int32_t> rows;  // of x
  Address<int32_t> ids;           // [num_rows]
};

/// out = T(T(silu(gate)) * up), for matrix products that do not do it themselves
struct SwigluArgs {
  ConstMatrixView gate_up;  // [rows, 2 * cols]: gate columns, then up columns
  MatrixView out;           // [rows, cols]
};

/// out[i] = x[row_idx[i]], and of codes out_scales[i] = scales[row_idx[i]].
struct GatherRowsArgs {
  Zone zone = Zone::kGatherRows;
  ConstMatrixView x;
  std::span<const int32_t> row_idx;  // [rows of out]
  MatrixView out;
  Address<const float> scales;  // [rows of x], or none
  Address<float> out_scales;    // [rows of out]
};

/// The consecutive rows of one group that a row is among.
struct RowRun {
  int32_t group = 0;
  int32_t first_row = 0;
  int32_t num_rows = 0;
};

/// The rows of a batch's experts, expert by expert and in token order within one: what goes where, for a backend whose host
/// does not look at what its router chose.
struct ExpertRowsArgs {
  Address<const int32_t> topk_idx;  // [num_tokens, top_k] experts
  int64_t num_tokens;
  int64_t top_k;
  int64_t num_experts;
  Address<int32_t> row_token;    // [num_tokens * top_k] the token of each row
  Address<int32_t> slot_row;     // [num_tokens, top_k] the row of each slot
  Address<int32_t> counts;       // [num_experts] rows of each
  Address<RowRun> row_runs;      // [num_tokens * top_k] of each row
  Address<uint32_t> row_totals;  // [num_experts] what counts are added to, modulo 2^32
};

/// router_topk and expert_rows one after the other, of the same tokens.
struct ExpertChoiceArgs {
  RouterTopkArgs router;
  ExpertRowsArgs rows;
};

/// out[t] = T(sum_k T(slot_weights[t, k] * row(t, k))): fp32 sum in slot order, one rounding (transformers' grouped form).
struct CombineArgs {
  std::span<const std::byte* const> slot_rows;  // [T * num_slots] rows of `cols` elements of out's dtype; a null ends a token's
  // In place of slot_rows, where the host does not know them: row(t, k) = rows[slot_row[t, k]].
  ConstMatrixView rows{};             // [T * num_slots, cols], or no data
  Address<const int32_t> slot_row{};  // [T, num_slots]
  Address<const float> slot_weights;  // [T, num_slots]
  int64_t num_slots;                  // of a token
  MatrixView out;                     // [T, cols]
};

/// out = T(routed + T(T(sigmoid(gate)) * shared)): the shared expert is weighted by its own scalar gate.
struct SharedExpertMergeArgs {
  ConstMatrixView routed;  // [T, hidden]
  ConstMatrixView shared;  // [T, hidden]
  ConstMatrixView gate;    // [T, 1]
  MatrixView out;          // [T, hidden], may be routed
};

/// scales[r] = max_k |x[r, k]| / 127; codes[r, k] = x[r, k] / scale to the nearest integer, ties to even, columns behind x's
/// last are zeros. A row whose scale would not be a normal number becomes zeros with scale 0; one with a NaN or an infinity
/// becomes zeros with scale NaN.
struct QuantizeRowsArgs {
  Zone zone = Zone::kQuantizeRows;
  ConstMatrixView x;      // [rows, k]
  MatrixView codes;       // [rows, quantized_cols(k)] i8
  Address<float> scales;  // [rows]
};

/// What a layer's experts come to: combine, and shared_expert_merge of its result in place, where there is a shared expert.
struct ExpertSumArgs {
  CombineArgs combine;
  SharedExpertMergeArgs merge{};  // or no data
};

/// What a block of the decoder begins with: residual = T(residual + added), the norm of that, and the norm's codes. The same
/// bits as expert_sum, add, rms_norm and quantize_rows one after the other, which is what runs where no table has more.
struct ResidualNormArgs {
  MatrixView residual;                     // [rows, cols]
  ConstMatrixView added{};                 // [rows, cols], or no data: the residual stays as it is
  const ExpertSumArgs* experts = nullptr;  // what comes to `added`, if that has not run; nothing else may read it
  RmsNormArgs norm;                        // of the residual
  QuantizeRowsArgs codes{};                // of norm.out, or no data: none
};

/// out = T((x - mean) / sqrt(variance + eps) * weight + bias), per row, the variance that of all columns.
struct LayerNormArgs {
  ConstMatrixView x;            // [rows, cols]
  Address<const float> weight;  // [cols]
  Address<const float> bias;    // [cols]
  float eps;
  MatrixView out;  // [rows, cols] T, may be x
};

/// kGeluTanh: y/2 (1 + tanh(sqrt(2/pi) (y + 0.044715 y^3))); kGelu: y/2 (1 + erf(y / sqrt(2))).
enum class BiasActivation : uint8_t { kNone, kGeluTanh, kGelu };

/// y = T(x + bias); out = T(activation(y)), or T(residual + y) with a residual.
struct AddBiasArgs {
  ConstMatrixView x;          // [rows, cols] T
  Address<const float> bias;  // [cols]
  BiasActivation activation = BiasActivation::kNone;
  ConstMatrixView residual{};  // [rows, cols] T, or no data; not with an activation
  MatrixView out;              // [rows, cols] T, may be x or residual
};

/// Rotates every head in place (split halves), as the vision tower does: for j < head_dim / 2, with one rounding,
/// x'_j = T(x_j c_j - x_{j+half} s_j), x'_{j+half} = T(x_{j+half} c_j + x_j s_j).
struct VisionRopeArgs {
  MatrixView x;  // [rows, num_heads * head_dim]
  int64_t head_dim;
  Address<const float> cos;  // [rows, head_dim / 2]
  Address<const float> sin;  // likewise
};

/// Attention of every row to all rows of its segment, before and behind: softmax(q.k * head_dim^-0.5) v in fp32, one rounding
/// to T; where the unit multiplies bf16, weights are rounded to bf16 before they meet v.
struct SegmentAttentionArgs {
  ConstMatrixView q, k, v;                // [rows, num_heads * head_dim]
  std::span<const int64_t> segment_ends;  // ascending; segment i has the rows from the end before it to its own
  int64_t num_heads;
  MatrixView out;  // [rows, num_heads * head_dim], not q, k or v
};

void embed(Stream& stream, const EmbedArgs& args);
void rms_norm(Stream& stream, const RmsNormArgs& args);
void add(Stream& stream, const AddArgs& args);
void multiply(Stream& stream, const MultiplyArgs& args);
void gated_rms_norm(Stream& stream, const GatedRmsNormArgs& args);
void rope(Stream& stream, const RopeArgs& args);
void kv_append(Stream& stream, const KvAppendArgs& args);
void attention(Stream& stream, const AttentionArgs& args);
void sigmoid_gate(Stream& stream, const SigmoidGateArgs& args);
void causal_conv1d(Stream& stream, const CausalConv1dArgs& args);
void delta_gates(Stream& stream, const DeltaGatesArgs& args);
void gated_delta_rule(Stream& stream, const GatedDeltaRuleArgs& args);
void gated_delta_mix(Stream& stream, const GatedDeltaMixArgs& args);
void router_topk(Stream& stream, const RouterTopkArgs& args);
void argmax(Stream& stream, const ArgmaxArgs& args);
void gather_rows(Stream& stream, const GatherRowsArgs& args);
void expert_rows(Stream& stream, const ExpertRowsArgs& args);
void choose_experts(Stream& stream, const ExpertChoiceArgs& args);
void combine(Stream& stream, const CombineArgs& args);
void shared_expert_merge(Stream& stream, const SharedExpertMergeArgs& args);
void quantize_rows(Stream& stream, const QuantizeRowsArgs& args);
void expert_sum(Stream& stream, const ExpertSumArgs& args);
void residual_norm(Stream& stream, const ResidualNormArgs& args);
void layer_norm(Stream& stream, const LayerNormArgs& args);
void vision_rope(Stream& stream, const VisionRopeArgs& args);
void segment_attention(Stream& stream, const SegmentAttentionArgs& args);

}  // namespace ferry

#include "runtime/model/qwen3_5.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "profiler/span.h"
#include "runtime/base/check.h"

namespace ferry {

/// Room for codes of rows of several widths.
struct Qwen35Model::CodeBuffer {
  CodeBuffer() = default;
  CodeBuffer(int64_t max_rows, int64_t max_cols)
      : bytes(static_cast<std::size_t>(max_rows * quantized_cols(max_cols))), scales(static_cast<std::size_t>(max_rows)) {}
  MatrixView view(const MicroBatch& rows, int64_t cols) {
    const int64_t padded = quantized_cols(cols);
    FERRY_CHECK_LE(static_cast<std::size_t>((rows.first_row + rows.num_tokens) * padded), bytes.size());
    return {bytes.data() + rows.first_row * padded, DType::kI8, rows.num_tokens, padded, padded};
  }
  AlignedBuffer bytes;
  std::vector<float> scales;
};

/// Rows as products take them: plain weights read values, quantised ones codes (empty where nothing needs them).
struct Qwen35Model::Activations {
  ConstMatrixView values;
  MatmulRows codes;
};

/// Everything a step writes, one field per intermediate. T = max_tokens, R = max_logit_rows.
struct Qwen35Model::Buffers {
  Buffers(const ModelConfig& c, const Quantization& quantization, DType dtype, const Limits& limits) {
    const int64_t t = limits.max_tokens, h = c.hidden_dim;
    const AttentionConfig& a = c.attention;
    const DeltaNetConfig& d = c.deltanet;
    hidden = Matrix(dtype, t, h);
    normed = Matrix(dtype, t, h);
    block_out = Matrix(dtype, t, h);
    qkv = Matrix(dtype, t, d.conv_channels());
    conv_out = Matrix(dtype, t, d.conv_channels());
    z = Matrix(dtype, t, d.value_dim());
    a_gate = Matrix(dtype, t, d.num_v_heads);
    b_gate = Matrix(dtype, t, d.num_v_heads);
    decay = Matrix(DType::kF32, t, d.num_v_heads);
    beta = Matrix(DType::kF32, t, d.num_v_heads);
    delta_out = Matrix(dtype, t, d.value_dim());
    q_and_gate = Matrix(dtype, t, 2 * a.num_heads * a.head_dim);
    q = Matrix(dtype, t, a.num_heads * a.head_dim);
    k = Matrix(dtype, t, a.num_kv_heads * a.head_dim);
    v = Matrix(dtype, t, a.num_kv_heads * a.head_dim);
    attention_out = Matrix(dtype, t, a.num_heads * a.head_dim);
    cos = Matrix(DType::kF32, t, a.rotary_dim / 2);
    sin = Matrix(DType::kF32, t, a.rotary_dim / 2);
    router_logits = Matrix(dtype, t, c.moe.num_experts);
    topk_idx.resize(static_cast<std::size_t>(t * c.moe.top_k));
    topk_weights.resize(static_cast<std::size_t>(t * c.moe.top_k));
    shared_activated = Matrix(dtype, t, c.moe.shared_intermediate_dim);
    shared_out = Matrix(dtype, t, h);
    shared_gate = Matrix(dtype, t, 1);
    last_hidden = Matrix(dtype, limits.max_logit_rows, h);
    logits = Matrix(dtype, limits.max_logit_rows, c.vocab_size);
    if (quantization.any()) {
      normed_codes = CodeBuffer(t, h);
      inner_codes = CodeBuffer(t, std::max({d.value_dim(), a.num_heads * a.head_dim, c.moe.shared_intermediate_dim}));
    }
    conv_states.resize(static_cast<std::size_t>(limits.max_sequences));
    delta_states.resize(static_cast<std::size_t>(limits.max_sequences));
    for (MicroBatch& batch : micro_batches) {
      batch.sequences.reserve(static_cast<std::size_t>(limits.max_sequences));
      batch.block_tables.reserve(static_cast<std::size_t>(limits.max_sequences));
      batch.state_slots.reserve(static_cast<std::size_t>(limits.max_sequences));
    }
  }

  Matrix hidden;     // [T, hidden_dim] the residual stream
  Matrix normed;     // [T, hidden_dim]
  Matrix block_out;  // [T, hidden_dim] what a mixer or the MoE block adds to the stream
  // DeltaNet
  Matrix qkv, conv_out;                 // [T, conv_channels]
  Matrix z, delta_out;                  // [T, value_dim]
  Matrix a_gate, b_gate;                // [T, num_v_heads]
  Matrix decay, beta;                   // [T, num_v_heads] f32
  std::vector<std::byte*> conv_states;  // [num_sequences]
  std::vector<float*> delta_states;     // [num_sequences]
  // Gated attention
  Matrix q_and_gate;        // [T, num_heads * 2 * head_dim] per head query, then gate
  Matrix q, attention_out;  // [T, num_heads * head_dim]
  Matrix k, v;              // [T, num_kv_heads * head_dim]
  Matrix cos, sin;          // [T, rotary_dim / 2] f32
  // Mixture of experts
  Matrix router_logits;                 // [T, num_experts]
  std::vector<int32_t> topk_idx;        // [T, top_k]
  std::vector<float> topk_weights;      // [T, top_k]
  Matrix shared_activated, shared_out;  // [T, shared], [T, hidden_dim]
  Matrix shared_gate;                   // [T, 1]
  // Codes of a block's input, and of what its last product reads
  CodeBuffer normed_codes, inner_codes;
  // Head
  Matrix last_hidden, logits;  // [R, hidden_dim], [R, vocab]
  std::array<MicroBatch, 2> micro_batches;
};

/// What the layers of one step share.
struct Qwen35Model::Step {
  const StepInput& input;
  KvCache& kv_cache;
  RecurrentState& recurrent_state;
  TokenDispatcher& dispatcher;
  const Tap* tap;
};

namespace {

/// The micro-batch's rows of a step's intermediate.
MatrixView rows_of(Matrix& step_rows, const MicroBatch& batch) {
  return step_rows.view().rows_from(batch.first_row, batch.num_tokens);
}

}  // namespace

Qwen35Model::Qwen35Model(const ModelConfig& config, const TrunkWeights& weights, MatmulBackend& matmul, KernelContext context,
                         DType dtype, Limits limits)
    : config_(config),
      weights_(weights),
      matmul_(matmul),
      context_(context),
      dtype_(dtype),
      limits_(limits),
      buffers_(std::make_unique<Buffers>(config, weights.quantization, dtype, limits)) {}

Qwen35Model::~Qwen35Model() = default;

ConstMatrixView Qwen35Model::forward(const StepInput& input, KvCache& kv_cache, RecurrentState& recurrent_state,
                                     TokenDispatcher& dispatcher, const Tap* tap) {
  const auto num_tokens = static_cast<int64_t>(input.token_ids.size());
  FERRY_CHECK_LE(num_tokens, limits_.max_tokens);
  FERRY_CHECK_LE(static_cast<int64_t>(input.sequences.size()), limits_.max_sequences);
  FERRY_CHECK_LE(static_cast<int64_t>(input.logit_rows.size()), limits_.max_logit_rows);
  FERRY_CHECK_EQ(static_cast<int64_t>(input.positions.size()), 3 * num_tokens);
  const Step step{input, kv_cache, recurrent_state, dispatcher, tap};
  // A tap sees the rows of a step together.
  const std::span<const MicroBatch> batches =
      make_micro_batches(input, tap == nullptr ? limits_.min_micro_batch : 0, buffers_->micro_batches);
  std::array<DispatchHandle, TokenDispatcher::kMaxInFlight> routed;  // by micro-batch

  embed(context_, {.table = weights_.embed_tokens, .ids = input.token_ids, .out = buffers_->hidden.top(num_tokens)});
  fill_rope_table(input);
  if (tap != nullptr) tap->matrix("hidden", 0, buffers_->hidden.top(num_tokens));
  int64_t kv_layer = 0, state_layer = 0;
  for (int64_t i = 0; i < config_.num_layers(); ++i) {
    const LayerWeights& layer = weights_.layers[static_cast<std::size_t>(i)];
    const int64_t mixer_idx = std::holds_alternative<DeltaNetWeights>(layer.mixer) ? state_layer++ : kv_layer++;
    for (std::size_t m = 0; m < batches.size(); ++m) {
      check_context().micro_batch = static_cast<int>(m);
      if (i > 0) finish_moe(step, batches[m], std::move(routed[m]), i - 1);
      check_context().layer = static_cast<int>(i);
      mixer_block(step, batches[m], layer, mixer_idx);
      routed[m] = begin_moe(step, batches[m], layer, i);
    }
  }
  for (std::size_t m = 0; m < batches.size(); ++m) {
    check_context().micro_batch = static_cast<int>(m);
    finish_moe(step, batches[m], std::move(routed[m]), config_.num_layers() - 1);
  }
  check_context().micro_batch = 0;
  check_context().layer = -1;
  return lm_head(step);
}

Qwen35Model::Activations Qwen35Model::activations(ConstMatrixView x, CodeBuffer& buffer, const MicroBatch& batch,
                                                  bool is_quantized) {
  if (!is_quantized) return {x, {}};
  const MatrixView codes = buffer.view(batch, x.cols);
  float* scales = buffer.scales.data() + batch.first_row;
  quantize_rows(context_, {.x = x, .codes = codes, .scales = scales});
  return {x, {codes, scales}};
}

void Qwen35Model::linear(Zone zone, const Activations& x, const PackedMatrix& weights, MatrixView out) {
  const Span span(zone, out.rows);
  matmul_.matmul(*context_.pool, weights.type().is_quantized() ? x.codes : MatmulRows{x.values}, weights, out);
}

/// hidden += mixer(norm(hidden))
void Qwen35Model::mixer_block(const Step& step, const MicroBatch& batch, const LayerWeights& layer, int64_t mixer_idx) {
  const MatrixView hidden = rows_of(buffers_->hidden, batch), out = rows_of(buffers_->block_out, batch);
  rms_norm(
      context_,
      {.x = hidden, .weight = layer.input_norm.data(), .eps = config_.rms_norm_eps, .out = rows_of(buffers_->normed, batch)});
  if (const auto* deltanet = std::get_if<DeltaNetWeights>(&layer.mixer)) {
    deltanet_layer(step, batch, *deltanet, mixer_idx, out);
  } else {
    attention_layer(step, batch, std::get<AttentionWeights>(layer.mixer), mixer_idx, out);
  }
  add(context_, {.a = hidden, .b = out, .out = hidden});
}

/// Gated DeltaNet: projections, short convolution, gated delta rule, gated norm, output projection.
void Qwen35Model::deltanet_layer(const Step& step, const MicroBatch& batch, const DeltaNetWeights& w, int64_t state_layer,
                                 MatrixView out) {
  const DeltaNetConfig& d = config_.deltanet;
  const std::size_t num_sequences = batch.sequences.size();
  Buffers& b = *buffers_;
  for (std::size_t s = 0; s < num_sequences; ++s) {
    b.conv_states[s] = step.recurrent_state.conv(state_layer, batch.state_slots[s]);
    b.delta_states[s] = step.recurrent_state.delta(state_layer, batch.state_slots[s]);
  }
  const bool is_quantized = weights_.quantization.mixers.has_value();
  const Activations x = activations(rows_of(b.normed, batch), b.normed_codes, batch, is_quantized);
  linear(Zone::kInProjQkv, x, *w.in_proj_qkv, rows_of(b.qkv, batch));
  linear(Zone::kInProjZ, x, *w.in_proj_z, rows_of(b.z, batch));
  linear(Zone::kInProjB, x, *w.in_proj_b, rows_of(b.b_gate, batch));
  linear(Zone::kInProjA, x, *w.in_proj_a, rows_of(b.a_gate, batch));
  causal_conv1d(context_, {.x = rows_of(b.qkv, batch),
                           .weight = w.conv1d.data(),
                           .kernel = d.conv_kernel,
                           .sequences = batch.sequences,
                           .states = std::span(b.conv_states).first(num_sequences),
                           .out = rows_of(b.conv_out, batch)});
  float* decay = b.decay.view().row<float>(batch.first_row);
  float* beta = b.beta.view().row<float>(batch.first_row);
  delta_gates(context_, {.a = rows_of(b.a_gate, batch),
                         .b = rows_of(b.b_gate, batch),
                         .a_log = w.a_log.data(),
                         .dt_bias = w.dt_bias.data(),
                         .decay = decay,
                         .beta = beta});
  gated_delta_rule(context_, {.qkv = rows_of(b.conv_out, batch),
                              .decay = decay,
                              .beta = beta,
                              .num_k_heads = d.num_k_heads,
                              .num_v_heads = d.num_v_heads,
                              .k_dim = d.k_dim,
                              .v_dim = d.v_dim,
                              .chunk = step.input.delta_chunk,
                              .sequences = batch.sequences,
                              .states = std::span(b.delta_states).first(num_sequences),
                              .out = rows_of(b.delta_out, batch)});
  const MatrixView heads = rows_of(b.delta_out, batch).split_rows(d.num_v_heads);  // [T * num_v_heads, v_dim]
  gated_rms_norm(context_, {.x = heads,
                            .gate = rows_of(b.z, batch).split_rows(d.num_v_heads),
                            .weight = w.norm.data(),
                            .weight_dtype = w.norm_dtype,
                            .eps = config_.rms_norm_eps,
                            .out = heads});
  linear(Zone::kOutProj, activations(rows_of(b.delta_out, batch), b.inner_codes, batch, is_quantized), *w.out_proj, out);
}

/// Gated attention: q (with its gate), k, v; head norms; partial rotary positions; causal attention over the cache; sigmoid
/// gate; output projection.
void Qwen35Model::attention_layer(const Step& step, const MicroBatch& batch, const AttentionWeights& w, int64_t kv_layer,
                                  MatrixView out) {
  const AttentionConfig& a = config_.attention;
  Buffers& b = *buffers_;
  const MatrixView q = rows_of(b.q, batch), k = rows_of(b.k, batch), v = rows_of(b.v, batch),
                   attended = rows_of(b.attention_out, batch);
  const bool is_quantized = weights_.quantization.mixers.has_value();
  const Activations x = activations(rows_of(b.normed, batch), b.normed_codes, batch, is_quantized);
  linear(Zone::kQProj, x, *w.q_proj, rows_of(b.q_and_gate, batch));
  linear(Zone::kKProj, x, *w.k_proj, k);
  linear(Zone::kVProj, x, *w.v_proj, v);
  const MatrixView q_and_gate = rows_of(b.q_and_gate, batch).split_rows(a.num_heads);  // [T * num_heads, 2 * head_dim]
  rms_norm(context_, {.zone = Zone::kQkNorm,
                      .x = q_and_gate.cols_from(0, a.head_dim),
                      .weight = w.q_norm.data(),
                      .eps = config_.rms_norm_eps,
                      .out = q.split_rows(a.num_heads)});
  const MatrixView k_heads = k.split_rows(a.num_kv_heads);  // [T * num_kv_heads, head_dim]
  rms_norm(context_,
           {.zone = Zone::kQkNorm, .x = k_heads, .weight = w.k_norm.data(), .eps = config_.rms_norm_eps, .out = k_heads});
  const float* cos = b.cos.view().row<float>(batch.first_row);
  const float* sin = b.sin.view().row<float>(batch.first_row);
  for (const MatrixView& rotated : {q, k})
    rope(context_, {.x = rotated, .head_dim = a.head_dim, .rotary_dim = a.rotary_dim, .cos = cos, .sin = sin});

  const KvLayerView cache = step.kv_cache.layer(static_cast<int>(kv_layer));
  kv_append(context_, {.k = k, .v = v, .cache = cache, .sequences = batch.sequences, .block_tables = batch.block_tables});
  attention(context_, {.q = q,
                       .cache = cache,
                       .sequences = batch.sequences,
                       .block_tables = batch.block_tables,
                       .num_heads = a.num_heads,
                       .out = attended});
  const MatrixView heads = attended.split_rows(a.num_heads);
  sigmoid_gate(context_, {.x = heads, .gate = q_and_gate.cols_from(a.head_dim, a.head_dim), .out = heads});
  linear(Zone::kOProj, activations(attended, b.inner_codes, batch, is_quantized), *w.o_proj, out);
}

/// Norm and router; the rows leave for their experts, wherever those live, and while they work the shared expert does.
DispatchHandle Qwen35Model::begin_moe(const Step& step, const MicroBatch& batch, const LayerWeights& layer, int64_t layer_idx) {
  const MoeWeights& w = layer.moe;
  Buffers& b = *buffers_;
  const MatrixView normed = rows_of(b.normed, batch);
  rms_norm(context_, {.zone = Zone::kPostAttentionNorm,
                      .x = rows_of(b.hidden, batch),
                      .weight = layer.post_attention_norm.data(),
                      .eps = config_.rms_norm_eps,
                      .out = normed});
  const bool sends_codes = step.dispatcher.row_dtype() == DType::kI8, is_quantized = weights_.quantization.shared.has_value();
  const Activations x = activations(normed, b.normed_codes, batch, sends_codes || is_quantized);
  linear(Zone::kRouter, x, *w.router, rows_of(b.router_logits, batch));
  const int64_t top_k = config_.moe.top_k;
  const auto first = static_cast<std::size_t>(batch.first_row * top_k),
             count = static_cast<std::size_t>(batch.num_tokens * top_k);
  const std::span<int32_t> topk_idx = std::span(b.topk_idx).subspan(first, count);
  const std::span<float> topk_weights = std::span(b.topk_weights).subspan(first, count);
  router_topk(context_, {.logits = rows_of(b.router_logits, batch),
                         .top_k = top_k,
                         .topk_idx = topk_idx.data(),
                         .topk_weights = topk_weights.data()});
  if (step.tap != nullptr) step.tap->routing(layer_idx, topk_idx, topk_weights);

  DispatchHandle routed = step.dispatcher.dispatch({.layer = layer_idx,
                                                    .tokens = sends_codes ? x.codes : MatmulRows{x.values},
                                                    .topk_idx = topk_idx,
                                                    .topk_weights = topk_weights,
                                                    .top_k = top_k,
                                                    .micro_batch = static_cast<uint8_t>(batch.first_row == 0 ? 0 : 1)});
  const MatrixView activated = rows_of(b.shared_activated, batch);
  linear(Zone::kSharedGateUp, x, *w.shared_gate_up, activated);
  linear(Zone::kSharedDown, activations(activated, b.inner_codes, batch, is_quantized), *w.shared_down,
         rows_of(b.shared_out, batch));
  linear(Zone::kSharedGate, x, *w.shared_expert_gate, rows_of(b.shared_gate, batch));
  return routed;
}

/// hidden += routed experts + gated shared expert
void Qwen35Model::finish_moe(const Step& step, const MicroBatch& batch, DispatchHandle routed, int64_t layer_idx) {
  check_context().layer = static_cast<int>(layer_idx);
  Buffers& b = *buffers_;
  const MatrixView hidden = rows_of(b.hidden, batch), out = rows_of(b.block_out, batch);
  step.dispatcher.combine(std::move(routed), out);
  shared_expert_merge(
      context_, {.routed = out, .shared = rows_of(b.shared_out, batch), .gate = rows_of(b.shared_gate, batch), .out = out});
  add(context_, {.a = hidden, .b = out, .out = hidden});
  if (step.tap != nullptr && layer_idx + 1 < config_.num_layers()) step.tap->matrix("hidden", layer_idx + 1, hidden);
}

/// Final norm and logits of the rows that are asked for.
ConstMatrixView Qwen35Model::lm_head(const Step& step) {
  const auto num_rows = static_cast<int64_t>(step.input.logit_rows.size());
  const MatrixView last = buffers_->last_hidden.top(num_rows);
  const MatrixView logits = buffers_->logits.top(num_rows);
  gather_rows(context_, {.x = buffers_->hidden.view(), .row_idx = step.input.logit_rows, .out = last});
  rms_norm(context_,
           {.zone = Zone::kFinalNorm, .x = last, .weight = weights_.norm.data(), .eps = config_.rms_norm_eps, .out = last});
  if (step.tap != nullptr) step.tap->matrix("hidden", config_.num_layers(), last);
  const MicroBatch rows{.num_tokens = num_rows};
  linear(Zone::kLmHead, activations(last, buffers_->normed_codes, rows, weights_.quantization.lm_head.has_value()),
         *weights_.lm_head, logits);
  return logits;
}

/// cos and sin of position x theta^(-2j / rotary_dim), in fp32, rounded to the run's dtype. Interleaved M-RoPE: frequency j
/// reads the height if j mod 3 is 1 (and j < 3 * section[1]), the width if it is 2 (and j < 3 * section[2]), else the time.
void Qwen35Model::fill_rope_table(const StepInput& input) {
  const AttentionConfig& a = config_.attention;
  const int64_t num_tokens = static_cast<int64_t>(input.token_ids.size()), half = a.rotary_dim / 2;
  const Span span(Zone::kRopeTable, num_tokens);
  for (int64_t j = 0; j < half; ++j) {
    const float exponent = static_cast<float>(2 * j) / static_cast<float>(a.rotary_dim);
    const float inv_freq = 1.0F / std::pow(static_cast<float>(a.rope_theta), exponent);
    int64_t axis = 0;
    for (const int64_t candidate : {1, 2}) {
      if (j % 3 == candidate && j < 3 * a.mrope_section[static_cast<std::size_t>(candidate)]) axis = candidate;
    }
    for (int64_t t = 0; t < num_tokens; ++t) {
      const float angle = static_cast<float>(input.positions[static_cast<std::size_t>(axis * num_tokens + t)]) * inv_freq;
      float& cos = buffers_->cos.view().row<float>(t)[j];
      float& sin = buffers_->sin.view().row<float>(t)[j];
      cos = std::cos(angle);
      sin = std::sin(angle);
      if (dtype_ == DType::kBF16) {
        cos = round_to<bfloat16>(cos);
        sin = round_to<bfloat16>(sin);
      }
    }
  }
}

}  // namespace ferry

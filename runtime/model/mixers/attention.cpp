#include "runtime/model/mixers/attention.h"

#include "profiler/span.h"
#include "runtime/model/mixers/rotary_table.h"

namespace ferry {
AttentionMixer::AttentionMixer(const ModelConfig& config, const BlockLimits& limits)
    : plan_(config.attention),
      norm_(config.norm),
      dtype_(limits.dtype),
      is_quantized_(ferry::takes_codes(limits.quantization.mixers)) {
  const int64_t t = limits.max_tokens;
  if (plan_.has_gate) q_and_gate_ = Matrix(limits.stream.memory(), dtype_, t, plan_.q_proj_dim());
  q_ = Matrix(limits.stream.memory(), dtype_, t, plan_.query_dim());
  attention_out_ = Matrix(limits.stream.memory(), dtype_, t, plan_.query_dim());
  k_ = Matrix(limits.stream.memory(), dtype_, t, plan_.key_dim());
  v_ = Matrix(limits.stream.memory(), dtype_, t, plan_.key_dim());
  cos_ = Mirror<float>(limits.stream, t * plan_.rotary_dim / 2);
  sin_ = Mirror<float>(limits.stream, t * plan_.rotary_dim / 2);
  if (is_quantized_) out_codes_ = CodeBuffer(limits.stream.memory(), t, plan_.query_dim());
}

void AttentionMixer::begin_step(const StepInput& input) {
  const int64_t num_tokens = static_cast<int64_t>(input.token_ids.size()), half = plan_.rotary_dim / 2;
  const Span span(Zone::kRopeTable, num_tokens);
  fill_rotary_table(plan_, dtype_, input.positions, cos_.host(), sin_.host());
  cos_.send(0, num_tokens * half);
  sin_.send(0, num_tokens * half);
}

/// q = rotated norm of `query` [T * num_heads, head_dim] rows, k likewise of itself.
void AttentionMixer::norm_and_rotate(const BlockStep& step, const AttentionWeights& w, MatrixView query, MatrixView q,
                                     MatrixView k) {
  Stream& stream = step.products.stream();
  const MatrixView k_heads = k.split_rows(plan_.num_kv_heads);  // [T * num_kv_heads, head_dim]
  rms_norm(stream, {.zone = Zone::kQkNorm,
                    .x = query,
                    .weight = w.q_norm.data(),
                    .eps = norm_.eps,
                    .rounds_first = norm_.rounds_first,
                    .out = q.split_rows(plan_.num_heads)});
  rms_norm(stream, {.zone = Zone::kQkNorm,
                    .x = k_heads,
                    .weight = w.k_norm.data(),
                    .eps = norm_.eps,
                    .rounds_first = norm_.rounds_first,
                    .out = k_heads});
  const int64_t first = step.batch.first_row * plan_.rotary_dim / 2;
  const Address<const float> cos = cos_.device() + first, sin = sin_.device() + first;
  for (const MatrixView& rotated : {q, k})
    rope(stream, {.x = rotated, .head_dim = plan_.head_dim, .rotary_dim = plan_.rotary_dim, .cos = cos, .sin = sin});
}

void AttentionMixer::run(const BlockStep& step, const AttentionWeights& w, int kv_layer, MatrixView out) {
  const MicroBatch& batch = step.batch;
  const Products& products = step.products;
  Stream& stream = products.stream();
  const MatrixView q = rows_of(q_, batch), k = rows_of(k_, batch), v = rows_of(v_, batch),
                   attended = rows_of(attention_out_, batch);
  const MatrixView projected = plan_.has_gate ? rows_of(q_and_gate_, batch) : q;
  products.linears(
      step.normed,
      {{Zone::kQProj, w.q_proj.get(), projected}, {Zone::kKProj, w.k_proj.get(), k}, {Zone::kVProj, w.v_proj.get(), v}});
  const MatrixView head_rows = projected.split_rows(plan_.num_heads);  // [T * num_heads, head_dim, and as much of the gate]
  const SpanChain chain;
  norm_and_rotate(step, w, head_rows.cols_from(0, plan_.head_dim), q, k);

  const KvLayerView cache = step.kv_cache.layer(kv_layer);
  kv_append(stream, {.k = k, .v = v, .cache = cache, .sequences = batch.sequences, .block_tables = batch.block_tables});
  attention(stream, {.q = q,
                     .cache = cache,
                     .sequences = batch.sequences,
                     .block_tables = batch.block_tables,
                     .num_heads = plan_.num_heads,
                     .out = attended});
  if (plan_.has_gate) {
    const MatrixView heads = attended.split_rows(plan_.num_heads);
    sigmoid_gate(stream, {.x = heads, .gate = head_rows.cols_from(plan_.head_dim, plan_.head_dim), .out = heads});
  }
  products.linear(Zone::kOProj, products.activations(attended, out_codes_, batch, is_quantized_), *w.o_proj, out);
}

void AttentionMixer::describe(const ModelConfig& config, OperatorList& list) {
  const AttentionPlan& p = config.attention;
  const int64_t hidden = config.hidden_dim;
  const double act = list.activation_bytes();
  const std::optional<WeightType>& type = list.quantization().mixers;
  list.product(Zone::kQProj, hidden, p.q_proj_dim(), type);
  list.product(Zone::kKProj, hidden, p.key_dim(), type);
  list.product(Zone::kVProj, hidden, p.key_dim(), type);
  constexpr double kNormFlop = 4, kSigmoidMulFlop = 4;  // an element, by convention
  list.rows_per_token(p.num_heads);                     // and, by a span of its own, num_kv_heads
  list.norm(Zone::kQkNorm, p.head_dim, kNormFlop);
  if (p.has_gate) list.elementwise(Zone::kSigmoidGate, p.head_dim, kSigmoidMulFlop, 2);
  list.elementwise(Zone::kRope, p.rotary_dim, 0, 1);
  list.rows_per_token(1);
  const TensorFacts keys = list.activation({OperatorList::kRows, p.num_kv_heads, p.head_dim}),
                    kept = list.cached({OperatorList::kRows, p.num_kv_heads, p.head_dim});
  const double kept_bytes = as_double(p.num_kv_heads * kv_run_bytes(list.kv_dtype(), 1, p.head_dim));  // of a token's keys
  list.add({.zone = Zone::kKvAppend,
            .bytes = {.per_row = 2 * (as_double(p.key_dim()) * act + kept_bytes)},
            .inputs = {keys, keys},
            .outputs = {kept, kept}});
  const TensorFacts query = list.activation({OperatorList::kRows, p.num_heads, p.head_dim}),
                    cache = list.cached({OperatorList::kKeys, p.num_kv_heads, p.head_dim});
  list.add({.zone = Zone::kAttention,
            .factors = Factors::kValues,
            .flop = {.per_b = 4 * as_double(p.query_dim())},
            .bytes = {.per_row = 2 * as_double(p.query_dim()) * act, .per_key = 2 * kept_bytes},
            .row_keys_per_b = 1,
            .inputs = {query, cache, cache},
            .outputs = {query}});
  list.product(Zone::kOProj, p.query_dim(), hidden, type);
}

}  // namespace ferry

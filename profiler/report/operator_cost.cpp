#include "profiler/report/operator_cost.h"

#include <algorithm>

namespace ferry {
namespace {

// Operations per element of what has a sigmoid or a square root in it: the convention of this file, not a measurement.
constexpr double kNormFlop = 4, kSwigluFlop = 5, kSigmoidMulFlop = 4, kGatedNormFlop = 8, kQuantizeFlop = 3;

/// Dimensions as doubles, so that products neither overflow nor need casts.
struct Dims {
  explicit Dims(const ModelFacts& m)
      : hidden(d(m.hidden_dim)),
        vocab(d(m.vocab_size)),
        q(d(m.num_heads * m.head_dim)),
        kv(d(m.num_kv_heads * m.head_dim)),
        head(d(m.head_dim)),
        v_heads(d(m.num_v_heads)),
        v_head(d(m.v_dim)),
        value(d(m.num_v_heads * m.v_dim)),
        state(d(m.num_v_heads * m.k_dim * m.v_dim)),
        channels(d(m.conv_channels)),
        kernel(d(m.conv_kernel)),
        experts(d(m.num_experts)),
        top_k(d(m.top_k)),
        expert(d(m.intermediate_dim)),
        shared(d(m.shared_intermediate_dim)),
        act(d(m.dtype_bytes)),
        weight(m.weight_bytes),
        mixer_weight(m.mixer_bytes),
        shared_weight(m.shared_bytes),
        head_weight(m.head_bytes),
        expert_weight(m.expert_bytes) {}

  static double d(int64_t value) { return static_cast<double>(value); }

  double hidden, vocab, q, kv, head, v_heads, v_head, value, state, channels, kernel, experts, top_k, expert, shared;
  double act, weight, mixer_weight, shared_weight, head_weight, expert_weight;  // bytes of an element

  /// rows x [in] times [in, out].
  OperatorCost matmul(double rows, double in, double out, double weight_bytes) const {
    return {2 * rows * in * out, in * out * weight_bytes + rows * (in + out) * act};
  }
  /// The same with one matrix for each of `active` experts.
  OperatorCost grouped(double rows, double active, double in, double out) const {
    return {2 * rows * in * out, active * in * out * expert_weight + rows * (in + out) * act};
  }
  /// A product whose `pairs` of outputs become one each.
  OperatorCost with_swiglu(OperatorCost product, double pairs) const {
    return {product.flop + pairs * kSwigluFlop, product.bytes - pairs * act};
  }
  /// `elements` of which each takes `flop` operations and moves `operands` activations.
  OperatorCost elementwise(double elements, double flop, double operands) const {
    return {elements * flop, elements * operands * act};
  }
};

OperatorCost mixer_cost(const Dims& d, Zone zone, double rows, double b, double sequences) {
  switch (zone) {
    case Zone::kInProjQkv: return d.matmul(rows, d.hidden, d.channels, d.mixer_weight);
    case Zone::kInProjZ: return d.matmul(rows, d.hidden, d.value, d.mixer_weight);
    case Zone::kInProjB:
    case Zone::kInProjA: return d.matmul(rows, d.hidden, d.v_heads, d.weight);
    case Zone::kCausalConv1d:
      return {2 * rows * d.channels * d.kernel,
              d.act * d.channels * (2 * rows + d.kernel + 2 * std::max(b, 1.0) * (d.kernel - 1))};
    case Zone::kDeltaGates: return {10 * rows * d.v_heads, rows * d.v_heads * (2 * d.act + 2 * 4)};
    case Zone::kRecurrentDeltaRule:
    case Zone::kChunkDeltaRule:  // the state is fp32 and is read and written once per sequence
      return {7 * rows * d.state,
              2 * 4 * std::max(b, 1.0) * d.state + rows * ((d.channels + d.value) * d.act + 2 * 4 * d.v_heads)};
    case Zone::kGatedNorm: return d.elementwise(rows * d.v_head, kGatedNormFlop, 3);  // its rows are heads
    case Zone::kOutProj: return d.matmul(rows, d.value, d.hidden, d.mixer_weight);
    case Zone::kQProj: return d.matmul(rows, d.hidden, 2 * d.q, d.mixer_weight);  // with its gate
    case Zone::kKProj:
    case Zone::kVProj: return d.matmul(rows, d.hidden, d.kv, d.mixer_weight);
    case Zone::kQkNorm: return d.elementwise(rows * d.head, kNormFlop, 2);  // likewise
    case Zone::kKvAppend: return d.elementwise(rows * 2 * d.kv, 0, 2);
    case Zone::kAttention: {
      const double row_keys = 1000 * b;
      const double keys = rows > 0 ? row_keys * std::min(sequences / rows, 1.0) : 0;  // read from the cache
      return {4 * d.q * row_keys, d.act * (keys * 2 * d.kv + rows * 2 * d.q)};
    }
    case Zone::kSigmoidGate: return d.elementwise(rows * d.head, kSigmoidMulFlop, 3);  // likewise
    case Zone::kOProj: return d.matmul(rows, d.q, d.hidden, d.mixer_weight);
    default: return {};
  }
}

OperatorCost moe_cost(const Dims& d, Zone zone, double rows, double b) {
  switch (zone) {
    case Zone::kRouter: return d.matmul(rows, d.hidden, d.experts, d.weight);
    case Zone::kGatingTopK: return {5 * rows * d.experts, rows * (d.experts * d.act + 8 * d.top_k)};
    case Zone::kPermute: return d.elementwise(rows * d.hidden, 0, 2);
    case Zone::kGroupedGateUp: return d.with_swiglu(d.grouped(rows, b, d.hidden, 2 * d.expert), rows * d.expert);
    case Zone::kExpertQuantize: return d.elementwise(rows * d.expert, kQuantizeFlop, 1.5);
    case Zone::kGroupedDown: return d.grouped(rows, b, d.expert, d.hidden);
    case Zone::kCombine: return {2 * b * d.hidden, (b + rows) * d.hidden * d.act};
    case Zone::kSharedGateUp: return d.with_swiglu(d.matmul(rows, d.hidden, 2 * d.shared, d.shared_weight), rows * d.shared);
    case Zone::kSharedDown: return d.matmul(rows, d.shared, d.hidden, d.shared_weight);
    case Zone::kSharedGate: return d.matmul(rows, d.hidden, 1, d.weight);
    case Zone::kSharedMerge: return d.elementwise(rows * d.hidden, 2, 3);
    default: return {};
  }
}

}  // namespace

OperatorCost operator_cost(const ModelFacts& model, Zone zone, uint32_t a, uint32_t b, int64_t num_sequences) {
  const Dims d(model);
  const auto rows = static_cast<double>(a);
  switch (zone) {
    case Zone::kEmbedding: return {0, rows * d.hidden * (d.weight + d.act)};
    case Zone::kInputNorm:
    case Zone::kPostAttentionNorm:
    case Zone::kFinalNorm: return d.elementwise(rows * d.hidden, kNormFlop, 2);
    case Zone::kAdd: return d.elementwise(rows * d.hidden, 1, 3);
    case Zone::kQuantizeRows: return d.elementwise(rows * d.hidden, kQuantizeFlop, 1.5);  // codes are half of an activation
    case Zone::kGatherRows: return d.elementwise(rows * d.hidden, 0, 2);
    case Zone::kLmHead: return d.matmul(rows, d.hidden, d.vocab, d.head_weight);
    case Zone::kSample: return d.elementwise(rows * d.vocab, 1, 1);
    default: break;
  }
  switch (zone_info(zone).part) {
    case Part::kDeltaNet:
    case Part::kAttention: return mixer_cost(d, zone, rows, b, static_cast<double>(std::max<int64_t>(num_sequences, 1)));
    default: return moe_cost(d, zone, rows, b);
  }
}

}  // namespace ferry

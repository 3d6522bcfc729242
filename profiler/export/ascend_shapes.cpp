#include "profiler/export/ascend_shapes.h"

#include <algorithm>

namespace ferry {
namespace {

/// One span's tensors by what they are.
class Shapes {
 public:
  Shapes(const ModelFacts& model, uint32_t a, uint32_t b, int64_t num_sequences)
      : m(model), rows(a), extra(b), sequences(std::max<int64_t>(num_sequences, 1)) {}

  TensorShape activation(std::vector<int64_t> dims) const { return {std::move(dims), m.dtype == "f32" ? "FLOAT" : "DT_BF16"}; }
  static TensorShape fp32(std::vector<int64_t> dims) { return {std::move(dims), "FLOAT"}; }
  static TensorShape indices(std::vector<int64_t> dims) { return {std::move(dims), "INT32"}; }
  /// Of weights that take `bytes` each, scales included.
  TensorShape weight(std::vector<int64_t> dims, double bytes) const {
    if (bytes >= static_cast<double>(m.dtype_bytes)) return activation(std::move(dims));
    return {std::move(dims), bytes >= 1 ? "INT8" : "INT4"};
  }

  KernelShapes product(int64_t in, int64_t out, double bytes) const {
    return {{activation({rows, in}), weight({in, out}, bytes)}, {activation({rows, out})}};
  }
  /// A product with two results a pair of which becomes one.
  KernelShapes product_with_swiglu(int64_t in, int64_t out, double bytes) const {
    return {{activation({rows, in}), weight({in, 2 * out}, bytes)}, {activation({rows, out})}};
  }
  /// Of the experts that were given rows.
  KernelShapes grouped(int64_t in, int64_t weight_out, int64_t out) const {
    return {{activation({rows, in}), weight({extra, in, weight_out}, m.expert_bytes), indices({extra})},
            {activation({rows, out})}};
  }
  KernelShapes norm(int64_t width) const {
    return {{activation({rows, width}), activation({width})}, {activation({rows, width})}};
  }
  KernelShapes same(int64_t width, std::size_t num_inputs) const {
    return {std::vector<TensorShape>(num_inputs, activation({rows, width})), {activation({rows, width})}};
  }

  KernelShapes attention() const {
    const int64_t row_keys = 1000 * extra;
    const int64_t keys = rows > 0 ? row_keys * std::min(sequences, rows) / rows : 0;  // of all sequences
    const TensorShape query = activation({rows, m.num_heads, m.head_dim}),
                      cache = activation({keys, m.num_kv_heads, m.head_dim});
    return {{query, cache, cache}, {query}};
  }
  KernelShapes append_to_cache() const {
    const TensorShape keys = activation({rows, m.num_kv_heads, m.head_dim});
    return {{keys, keys}, {keys, keys}};
  }
  KernelShapes convolution() const {
    const int64_t num_states = std::max<int64_t>(extra, 1);
    return {{activation({rows, m.conv_channels}), activation({m.conv_channels, m.conv_kernel}),
             activation({num_states, m.conv_channels, m.conv_kernel - 1})},
            {activation({rows, m.conv_channels})}};
  }
  KernelShapes delta_gates() const {
    return {{activation({rows, m.num_v_heads}), activation({rows, m.num_v_heads})},
            {fp32({rows, m.num_v_heads}), fp32({rows, m.num_v_heads})}};
  }
  KernelShapes delta_rule() const {
    const TensorShape key = activation({rows, m.num_k_heads, m.k_dim}), value = activation({rows, m.num_v_heads, m.v_dim});
    const TensorShape gate = fp32({rows, m.num_v_heads});
    const TensorShape state = fp32({std::max<int64_t>(extra, 1), m.num_v_heads, m.v_dim, m.k_dim});
    return {{key, key, value, gate, gate, state}, {value, state}};
  }

  const ModelFacts& m;
  const int64_t rows, extra, sequences;
};

KernelShapes mixer_shapes(const Shapes& s, Zone zone) {
  const ModelFacts& m = s.m;
  const int64_t value = m.num_v_heads * m.v_dim, query = m.num_heads * m.head_dim, keys = m.num_kv_heads * m.head_dim;
  switch (zone) {
    case Zone::kInProjQkv: return s.product(m.hidden_dim, m.conv_channels, m.mixer_bytes);
    case Zone::kInProjZ: return s.product(m.hidden_dim, value, m.mixer_bytes);
    case Zone::kInProjB:
    case Zone::kInProjA: return s.product(m.hidden_dim, m.num_v_heads, m.weight_bytes);
    case Zone::kCausalConv1d: return s.convolution();
    case Zone::kDeltaGates: return s.delta_gates();
    case Zone::kRecurrentDeltaRule:
    case Zone::kChunkDeltaRule: return s.delta_rule();
    case Zone::kGatedNorm: {  // its rows are heads
      const TensorShape x = s.activation({s.rows, m.v_dim});
      return {{x, x, s.activation({m.v_dim})}, {x}};
    }
    case Zone::kOutProj: return s.product(value, m.hidden_dim, m.mixer_bytes);
    case Zone::kQProj: return s.product(m.hidden_dim, 2 * query, m.mixer_bytes);  // with its gate
    case Zone::kKProj:
    case Zone::kVProj: return s.product(m.hidden_dim, keys, m.mixer_bytes);
    case Zone::kQkNorm: return s.norm(m.head_dim);   // likewise
    case Zone::kRope: return s.same(m.head_dim, 1);  // likewise
    case Zone::kKvAppend: return s.append_to_cache();
    case Zone::kAttention: return s.attention();
    case Zone::kSigmoidGate: return s.same(m.head_dim, 2);  // likewise
    case Zone::kOProj: return s.product(query, m.hidden_dim, m.mixer_bytes);
    default: return {};
  }
}

KernelShapes moe_shapes(const Shapes& s, Zone zone) {
  const ModelFacts& m = s.m;
  switch (zone) {
    case Zone::kRouter: return s.product(m.hidden_dim, m.num_experts, m.weight_bytes);
    case Zone::kGatingTopK:
      return {{s.activation({s.rows, m.num_experts})}, {Shapes::fp32({s.rows, m.top_k}), Shapes::indices({s.rows, m.top_k})}};
    case Zone::kInitRouting:
    case Zone::kDispatch:
    case Zone::kPermute: return s.same(m.hidden_dim, 1);
    case Zone::kGroupedGateUp: return s.grouped(m.hidden_dim, 2 * m.intermediate_dim, m.intermediate_dim);
    case Zone::kExpertQuantize: return {{s.activation({s.rows, m.intermediate_dim})}, {{{s.rows, m.intermediate_dim}, "INT8"}}};
    case Zone::kGroupedDown: return s.grouped(m.intermediate_dim, m.hidden_dim, m.hidden_dim);
    case Zone::kCombine: return s.same(m.hidden_dim, 1);
    case Zone::kSharedGateUp: return s.product_with_swiglu(m.hidden_dim, m.shared_intermediate_dim, m.shared_bytes);
    case Zone::kSharedDown: return s.product(m.shared_intermediate_dim, m.hidden_dim, m.shared_bytes);
    case Zone::kSharedGate: return s.product(m.hidden_dim, 1, m.weight_bytes);
    case Zone::kSharedMerge: return s.same(m.hidden_dim, 2);
    default: return {};
  }
}

KernelShapes shapes_of(const Shapes& s, Zone zone) {
  const ModelFacts& m = s.m;
  switch (zone) {
    case Zone::kEmbedding:
      return {{s.activation({m.vocab_size, m.hidden_dim}), Shapes::indices({s.rows})}, {s.activation({s.rows, m.hidden_dim})}};
    case Zone::kInputNorm:
    case Zone::kPostAttentionNorm:
    case Zone::kFinalNorm: return s.norm(m.hidden_dim);
    case Zone::kAdd: return s.same(m.hidden_dim, 2);
    case Zone::kQuantizeRows: return {{s.activation({s.rows, m.hidden_dim})}, {{{s.rows, m.hidden_dim}, "INT8"}}};
    case Zone::kGatherRows: return s.same(m.hidden_dim, 1);
    case Zone::kLmHead: return s.product(m.hidden_dim, m.vocab_size, m.head_bytes);
    case Zone::kSample: return {{s.activation({s.rows, m.vocab_size})}, {Shapes::indices({s.rows})}};
    default: break;
  }
  const Part part = zone_info(zone).part;
  return part == Part::kDeltaNet || part == Part::kAttention ? mixer_shapes(s, zone) : moe_shapes(s, zone);
}

}  // namespace

KernelShapes kernel_shapes(const ModelFacts& model, Zone zone, uint32_t a, uint32_t b, int64_t num_sequences) {
  if (model.hidden_dim == 0) return {};  // nothing is known of the model
  return shapes_of(Shapes(model, a, b, num_sequences), zone);
}

}  // namespace ferry

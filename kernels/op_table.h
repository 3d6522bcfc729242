#pragma once

#include <string_view>
#include <vector>

#include "kernels/ops.h"
#include "kernels/stream.h"

// The implementations of the ops as data: a table of functions for each instruction set or unit.

namespace ferry {

/// An implementation of an op, or none.
template <class Args>
class Op {
 public:
  using Run = void (*)(Stream&, const Args&);
  using Takes = bool (*)(const Args&);

  constexpr Op() = default;
  /// Takes all arguments that the op allows, or those that meet `condition`.
  constexpr Op(Run run, Takes condition = nullptr) : run_(run), takes_(condition) {}  // NOLINT: implicit

  bool takes(const Args& args) const { return run_ != nullptr && (takes_ == nullptr || takes_(args)); }
  void operator()(Stream& stream, const Args& args) const { run_(stream, args); }

 private:
  Run run_ = nullptr;
  Takes takes_ = nullptr;
};

struct OpTable {
  const char* name;  // "ref", "avx2", "avx512", "avx512_bf16", "amx"
  Op<EmbedArgs> embed;
  Op<RmsNormArgs> rms_norm;
  Op<AddArgs> add;
  Op<MultiplyArgs> multiply;
  Op<GatedRmsNormArgs> gated_rms_norm;
  Op<RopeArgs> rope;
  Op<KvAppendArgs> kv_append;
  Op<AttentionArgs> attention;
  Op<SigmoidGateArgs> sigmoid_gate;
  Op<CausalConv1dArgs> causal_conv1d;
  Op<DeltaGatesArgs> delta_gates;
  Op<GatedDeltaRuleArgs> gated_delta_rule;
  Op<GatedDeltaMixArgs> gated_delta_mix;
  Op<RouterTopkArgs> router_topk;
  Op<ArgmaxArgs> argmax;
  Op<SwigluArgs> swiglu;
  Op<GatherRowsArgs> gather_rows;
  Op<ExpertRowsArgs> expert_rows;
  Op<ExpertChoiceArgs> choose_experts;
  Op<CombineArgs> combine;
  Op<SharedExpertMergeArgs> shared_expert_merge;
  Op<QuantizeRowsArgs> quantize_rows;
  Op<ResidualNormArgs> residual_norm;
  Op<LayerNormArgs> layer_norm;
  Op<AddBiasArgs> add_bias;
  Op<VisionRopeArgs> vision_rope;
  Op<SegmentAttentionArgs> segment_attention;
};

namespace detail {
template <auto kRun>
struct OnPool;
template <class Args, void (*kRun)(ThreadPool&, const Args&)>
struct OnPool<kRun> {
  static void run(Stream& stream, const Args& args) { kRun(stream.pool(), args); }
};
}  // namespace detail

/// A function of threads and arguments as the CPU's tables hold it.
template <auto kRun>
inline constexpr auto on_pool = &detail::OnPool<kRun>::run;

/// The tables with every op that this processor can run, best first; "ref" always closes the list.
std::vector<const OpTable*> available_op_tables();
/// Of this processor's units that are no instruction set of their own, best first: what they do better than the best of those.
std::vector<const OpTable*> available_unit_tables();

/// The one of the former called `name`, or the best for "auto". Throws Error{kInvalidArgument} that lists what there is.
const OpTable& select_op_table(std::string_view name);

namespace ref {
extern const OpTable kOpTable;
}
namespace cpu_avx2 {
extern const OpTable kOpTable;
}
namespace cpu_avx512 {
extern const OpTable kOpTable;
}
namespace cpu_avx512_bf16 {
extern const OpTable kOpTable;
}
namespace cpu_amx {
extern const OpTable kOpTable;
}

}  // namespace ferry

#pragma once

#include <string_view>
#include <vector>

#include "kernels/ops.h"

// The implementations of the ops as data: one table of function pointers per instruction set, in order of preference.

namespace ferry {

struct OpTable {
  const char* name;  // "ref", "avx2", "avx512"
  void (*embed)(ThreadPool&, const EmbedArgs&);
  void (*rms_norm)(ThreadPool&, const RmsNormArgs&);
  void (*add)(ThreadPool&, const AddArgs&);
  void (*multiply)(ThreadPool&, const MultiplyArgs&);
  void (*gated_rms_norm)(ThreadPool&, const GatedRmsNormArgs&);
  void (*rope)(ThreadPool&, const RopeArgs&);
  void (*kv_append)(ThreadPool&, const KvAppendArgs&);
  void (*attention)(ThreadPool&, const AttentionArgs&);
  void (*sigmoid_gate)(ThreadPool&, const SigmoidGateArgs&);
  void (*causal_conv1d)(ThreadPool&, const CausalConv1dArgs&);
  void (*delta_gates)(ThreadPool&, const DeltaGatesArgs&);
  void (*gated_delta_rule)(ThreadPool&, const GatedDeltaRuleArgs&);
  void (*router_topk)(ThreadPool&, const RouterTopkArgs&);
  void (*swiglu)(ThreadPool&, const SwigluArgs&);
  void (*gather_rows)(ThreadPool&, const GatherRowsArgs&);
  void (*combine)(ThreadPool&, const CombineArgs&);
  void (*shared_expert_merge)(ThreadPool&, const SharedExpertMergeArgs&);
  void (*quantize_rows)(ThreadPool&, const QuantizeRowsArgs&);
  void (*layer_norm)(ThreadPool&, const LayerNormArgs&);
  void (*add_bias)(ThreadPool&, const AddBiasArgs&);
  void (*vision_rope)(ThreadPool&, const VisionRopeArgs&);
  void (*segment_attention)(ThreadPool&, const SegmentAttentionArgs&);
};

/// The tables this processor can run, best first; "ref" always closes the list.
std::vector<const OpTable*> available_op_tables();

/// The table called `name`, or the best one for "auto". Throws Error{kInvalidArgument} that lists what there is.
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

/// Attention within segments on a unit that multiplies bf16, which is no instruction set of its own among the tables.
struct SegmentAttentionUnit {
  const char* name;  // "amx", "avx512_bf16"
  void (*run)(ThreadPool&, const SegmentAttentionArgs&);
};
/// Those of this processor, best first. They are faster than the tables' op and come with the best table.
const std::vector<SegmentAttentionUnit>& segment_attention_units();
/// Whether they take the arguments: bf16, and heads of up to 256 columns.
bool fits_segment_attention_units(const SegmentAttentionArgs& args);

}  // namespace ferry

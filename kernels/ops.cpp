#include "kernels/ops.h"

#include <string>

#include "kernels/op_table.h"
#include "runtime/base/error.h"

namespace ferry {

std::vector<const OpTable*> available_op_tables() {
  std::vector<const OpTable*> tables;
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (has_avx512) tables.push_back(&cpu_avx512::kOpTable);
  if (has_avx2) tables.push_back(&cpu_avx2::kOpTable);
  tables.push_back(&ref::kOpTable);
  return tables;
}

const OpTable& select_op_table(std::string_view name) {
  const std::vector<const OpTable*> tables = available_op_tables();
  if (name == "auto") return *tables.front();
  std::string allowed = "auto";
  for (const OpTable* table : tables) {
    if (name == table->name) return *table;
    allowed += std::string(", ") + table->name;
  }
  throw_invalid("--kernels: '" + std::string(name) + "' cannot run on this processor; allowed: " + allowed);
}

void embed(const KernelContext& ctx, const EmbedArgs& args) { ctx.ops->embed(*ctx.pool, args); }
void rms_norm(const KernelContext& ctx, const RmsNormArgs& args) { ctx.ops->rms_norm(*ctx.pool, args); }
void add(const KernelContext& ctx, const AddArgs& args) { ctx.ops->add(*ctx.pool, args); }
void gated_rms_norm(const KernelContext& ctx, const GatedRmsNormArgs& args) { ctx.ops->gated_rms_norm(*ctx.pool, args); }
void rope(const KernelContext& ctx, const RopeArgs& args) { ctx.ops->rope(*ctx.pool, args); }
void kv_append(const KernelContext& ctx, const KvAppendArgs& args) { ctx.ops->kv_append(*ctx.pool, args); }
void attention(const KernelContext& ctx, const AttentionArgs& args) { ctx.ops->attention(*ctx.pool, args); }
void sigmoid_gate(const KernelContext& ctx, const SigmoidGateArgs& args) { ctx.ops->sigmoid_gate(*ctx.pool, args); }
void causal_conv1d(const KernelContext& ctx, const CausalConv1dArgs& args) { ctx.ops->causal_conv1d(*ctx.pool, args); }
void delta_gates(const KernelContext& ctx, const DeltaGatesArgs& args) { ctx.ops->delta_gates(*ctx.pool, args); }
void gated_delta_rule(const KernelContext& ctx, const GatedDeltaRuleArgs& args) { ctx.ops->gated_delta_rule(*ctx.pool, args); }
void router_topk(const KernelContext& ctx, const RouterTopkArgs& args) { ctx.ops->router_topk(*ctx.pool, args); }
void swiglu(const KernelContext& ctx, const SwigluArgs& args) { ctx.ops->swiglu(*ctx.pool, args); }
void gather_rows(const KernelContext& ctx, const GatherRowsArgs& args) { ctx.ops->gather_rows(*ctx.pool, args); }
void combine(const KernelContext& ctx, const CombineArgs& args) { ctx.ops->combine(*ctx.pool, args); }
void shared_expert_merge(const KernelContext& ctx, const SharedExpertMergeArgs& args) {
  ctx.ops->shared_expert_merge(*ctx.pool, args);
}

}  // namespace ferry

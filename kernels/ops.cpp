#include "kernels/ops.h"

#include <algorithm>
#include <string>

#include "kernels/cpu_features.h"
#include "kernels/op_table.h"
#include "profiler/span.h"
#include "runtime/base/error.h"

namespace ferry {

namespace cpu_amx {
void segment_attention(ThreadPool& pool, const SegmentAttentionArgs& args);
}
namespace cpu_avx512_bf16 {
void segment_attention(ThreadPool& pool, const SegmentAttentionArgs& args);
}

namespace {

/// Keys that the rows of a step look at, each row for itself; as many as a record holds.
int64_t count_row_keys(std::span<const SequenceSpan> sequences) {
  int64_t keys = 0;
  for (const SequenceSpan& s : sequences) keys += s.num_tokens * s.num_past + s.num_tokens * (s.num_tokens + 1) / 2;
  return std::min<int64_t>(keys, UINT32_MAX);
}

/// Likewise, of attention within segments.
int64_t count_row_keys(std::span<const int64_t> segment_ends) {
  int64_t keys = 0, begin = 0;
  for (const int64_t end : segment_ends) {
    keys += (end - begin) * (end - begin);
    begin = end;
  }
  return std::min<int64_t>(keys, UINT32_MAX);
}

}  // namespace

std::vector<const OpTable*> available_op_tables() {
  std::vector<const OpTable*> tables;
  if (has_avx512()) tables.push_back(&cpu_avx512::kOpTable);
  if (has_avx2()) tables.push_back(&cpu_avx2::kOpTable);
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

const std::vector<SegmentAttentionUnit>& segment_attention_units() {
  static const std::vector<SegmentAttentionUnit> kUnits = [] {
    std::vector<SegmentAttentionUnit> units;
    if (has_amx()) units.push_back({"amx", cpu_amx::segment_attention});
    if (has_avx512_bf16()) units.push_back({"avx512_bf16", cpu_avx512_bf16::segment_attention});
    return units;
  }();
  return kUnits;
}

bool fits_segment_attention_units(const SegmentAttentionArgs& args) {
  constexpr int64_t kMaxHeadDim = 256;
  return args.q.dtype == DType::kBF16 && args.out.cols <= kMaxHeadDim * args.num_heads;
}

// Every op is a span of the trace; a is the number of tokens or rows, of heads where they are worked on alone.

void embed(const KernelContext& ctx, const EmbedArgs& args) {
  const Span span(Zone::kEmbedding, args.out.rows);
  ctx.ops->embed(*ctx.pool, args);
}
void rms_norm(const KernelContext& ctx, const RmsNormArgs& args) {
  const Span span(args.zone, args.out.rows);
  ctx.ops->rms_norm(*ctx.pool, args);
}
void add(const KernelContext& ctx, const AddArgs& args) {
  const Span span(Zone::kAdd, args.out.rows);
  ctx.ops->add(*ctx.pool, args);
}
void multiply(const KernelContext& ctx, const MultiplyArgs& args) {
  const Span span(args.zone, args.out.rows);
  ctx.ops->multiply(*ctx.pool, args);
}
void gated_rms_norm(const KernelContext& ctx, const GatedRmsNormArgs& args) {
  const Span span(Zone::kGatedNorm, args.out.rows);
  ctx.ops->gated_rms_norm(*ctx.pool, args);
}
void rope(const KernelContext& ctx, const RopeArgs& args) {
  const Span span(Zone::kRope, args.x.rows * args.x.cols / args.head_dim);
  ctx.ops->rope(*ctx.pool, args);
}
void kv_append(const KernelContext& ctx, const KvAppendArgs& args) {
  const Span span(Zone::kKvAppend, args.k.rows);
  ctx.ops->kv_append(*ctx.pool, args);
}
void attention(const KernelContext& ctx, const AttentionArgs& args) {
  const Span span(Zone::kAttention, args.q.rows, count_row_keys(args.sequences));
  ctx.ops->attention(*ctx.pool, args);
}
void sigmoid_gate(const KernelContext& ctx, const SigmoidGateArgs& args) {
  const Span span(Zone::kSigmoidGate, args.out.rows);
  ctx.ops->sigmoid_gate(*ctx.pool, args);
}
void causal_conv1d(const KernelContext& ctx, const CausalConv1dArgs& args) {
  const Span span(args.zone, args.out.rows, static_cast<int64_t>(args.sequences.size()));
  ctx.ops->causal_conv1d(*ctx.pool, args);
}
void delta_gates(const KernelContext& ctx, const DeltaGatesArgs& args) {
  const Span span(Zone::kDeltaGates, args.a.rows);
  ctx.ops->delta_gates(*ctx.pool, args);
}
void gated_delta_rule(const KernelContext& ctx, const GatedDeltaRuleArgs& args) {
  const bool has_chunks = std::ranges::any_of(args.sequences, [](const auto& s) { return s.form == DeltaForm::kChunk; });
  const Zone zone = has_chunks ? Zone::kChunkDeltaRule : Zone::kRecurrentDeltaRule;
  int64_t num_rows = args.out.rows;
  for (const SequenceSpan& sequence : args.sequences) num_rows += sequence.num_replayed;
  const Span span(zone, num_rows, static_cast<int64_t>(args.sequences.size()));
  ctx.ops->gated_delta_rule(*ctx.pool, args);
}
void router_topk(const KernelContext& ctx, const RouterTopkArgs& args) {
  const Span span(Zone::kGatingTopK, args.logits.rows);
  ctx.ops->router_topk(*ctx.pool, args);
}
void gather_rows(const KernelContext& ctx, const GatherRowsArgs& args) {
  const Span span(args.zone, args.out.rows);
  ctx.ops->gather_rows(*ctx.pool, args);
}
void combine(const KernelContext& ctx, const CombineArgs& args) {
  const Span span(Zone::kCombine, args.out.rows,
                  std::ranges::count_if(args.slot_rows, [](const std::byte* row) { return row != nullptr; }));
  ctx.ops->combine(*ctx.pool, args);
}
void shared_expert_merge(const KernelContext& ctx, const SharedExpertMergeArgs& args) {
  const Span span(Zone::kSharedMerge, args.out.rows);
  ctx.ops->shared_expert_merge(*ctx.pool, args);
}
void quantize_rows(const KernelContext& ctx, const QuantizeRowsArgs& args) {
  const Span span(args.zone, args.x.rows);
  ctx.ops->quantize_rows(*ctx.pool, args);
}
void layer_norm(const KernelContext& ctx, const LayerNormArgs& args) {
  const Span span(Zone::kVisionNorm, args.out.rows);
  ctx.ops->layer_norm(*ctx.pool, args);
}
void vision_rope(const KernelContext& ctx, const VisionRopeArgs& args) {
  const Span span(Zone::kVisionRope, args.x.rows * args.x.cols / args.head_dim);
  ctx.ops->vision_rope(*ctx.pool, args);
}
void segment_attention(const KernelContext& ctx, const SegmentAttentionArgs& args) {
  const Span span(Zone::kVisionAttention, args.out.rows, count_row_keys(args.segment_ends));
  const std::vector<SegmentAttentionUnit>& units = segment_attention_units();
  const bool is_for_unit = ctx.ops == &cpu_avx512::kOpTable && !units.empty() && fits_segment_attention_units(args);
  (is_for_unit ? units.front().run : ctx.ops->segment_attention)(*ctx.pool, args);
}

}  // namespace ferry

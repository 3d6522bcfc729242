#include "kernels/ops.h"

#include <algorithm>

#include "kernels/backend.h"
#include "profiler/span.h"

namespace ferry {
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

template <class Args>
void run(Op<Args> OpTable::*op, Stream& stream, const Args& args) {
  stream.backend().run(op, stream, args);
}

}  // namespace

// Every op is a span of the trace; a is the number of tokens or rows, of heads where they are worked on alone.

void embed(Stream& stream, const EmbedArgs& args) {
  const Span span(Zone::kEmbedding, args.out.rows);
  run(&OpTable::embed, stream, args);
}
void rms_norm(Stream& stream, const RmsNormArgs& args) {
  const Span span(args.zone, args.out.rows);
  run(&OpTable::rms_norm, stream, args);
}
void add(Stream& stream, const AddArgs& args) {
  const Span span(Zone::kAdd, args.out.rows);
  run(&OpTable::add, stream, args);
}
void multiply(Stream& stream, const MultiplyArgs& args) {
  const Span span(args.zone, args.out.rows);
  run(&OpTable::multiply, stream, args);
}
void gated_rms_norm(Stream& stream, const GatedRmsNormArgs& args) {
  const Span span(Zone::kGatedNorm, args.out.rows);
  run(&OpTable::gated_rms_norm, stream, args);
}
void rope(Stream& stream, const RopeArgs& args) {
  const Span span(Zone::kRope, args.x.rows * args.x.cols / args.head_dim);
  run(&OpTable::rope, stream, args);
}
void kv_append(Stream& stream, const KvAppendArgs& args) {
  const Span span(Zone::kKvAppend, args.k.rows);
  run(&OpTable::kv_append, stream, args);
}
void attention(Stream& stream, const AttentionArgs& args) {
  const Span span(Zone::kAttention, args.q.rows, count_row_keys(args.sequences));
  run(&OpTable::attention, stream, args);
}
void sigmoid_gate(Stream& stream, const SigmoidGateArgs& args) {
  const Span span(Zone::kSigmoidGate, args.out.rows);
  run(&OpTable::sigmoid_gate, stream, args);
}
void causal_conv1d(Stream& stream, const CausalConv1dArgs& args) {
  const Span span(args.zone, args.out.rows, static_cast<int64_t>(args.sequences.size()));
  run(&OpTable::causal_conv1d, stream, args);
}
void delta_gates(Stream& stream, const DeltaGatesArgs& args) {
  const Span span(Zone::kDeltaGates, args.a.rows);
  run(&OpTable::delta_gates, stream, args);
}
void gated_delta_rule(Stream& stream, const GatedDeltaRuleArgs& args) {
  const bool has_chunks = std::ranges::any_of(args.sequences, [](const auto& s) { return s.form == DeltaForm::kChunk; });
  const Zone zone = has_chunks ? Zone::kChunkDeltaRule : Zone::kRecurrentDeltaRule;
  int64_t num_rows = args.out.rows;
  for (const SequenceSpan& sequence : args.sequences) num_rows += sequence.num_replayed;
  const Span span(zone, num_rows, static_cast<int64_t>(args.sequences.size()));
  run(&OpTable::gated_delta_rule, stream, args);
}
void gated_delta_mix(Stream& stream, const GatedDeltaMixArgs& args) {
  if (stream.backend().has(&OpTable::gated_delta_mix, args)) {
    const Span span(Zone::kRecurrentDeltaRule, args.rule.out.rows, static_cast<int64_t>(args.rule.sequences.size()));
    return run(&OpTable::gated_delta_mix, stream, args);
  }
  const SpanChain chain;
  causal_conv1d(stream, args.conv);
  delta_gates(stream, args.gates);
  gated_delta_rule(stream, args.rule);
  gated_rms_norm(stream, args.norm);
}
void router_topk(Stream& stream, const RouterTopkArgs& args) {
  const Span span(Zone::kGatingTopK, args.logits.rows);
  run(&OpTable::router_topk, stream, args);
}
void argmax(Stream& stream, const ArgmaxArgs& args) {
  const Span span(Zone::kSample, static_cast<int64_t>(args.rows.size()));
  run(&OpTable::argmax, stream, args);
}
void gather_rows(Stream& stream, const GatherRowsArgs& args) {
  const Span span(args.zone, args.out.rows);
  run(&OpTable::gather_rows, stream, args);
}
void expert_rows(Stream& stream, const ExpertRowsArgs& args) {
  const Span span(Zone::kInitRouting, args.num_tokens);
  run(&OpTable::expert_rows, stream, args);
}
void choose_experts(Stream& stream, const ExpertChoiceArgs& args) {
  if (stream.backend().has(&OpTable::choose_experts, args)) {
    const Span span(Zone::kGatingTopK, args.rows.num_tokens);
    return run(&OpTable::choose_experts, stream, args);
  }
  const SpanChain chain;
  router_topk(stream, args.router);
  expert_rows(stream, args.rows);
}
void combine(Stream& stream, const CombineArgs& args) {
  const auto is_there = [](const std::byte* row) { return row != nullptr; };
  const Span span(Zone::kCombine, args.out.rows,
                  args.rows.data != nullptr ? args.rows.rows : std::ranges::count_if(args.slot_rows, is_there));
  run(&OpTable::combine, stream, args);
}
void shared_expert_merge(Stream& stream, const SharedExpertMergeArgs& args) {
  const Span span(Zone::kSharedMerge, args.out.rows);
  run(&OpTable::shared_expert_merge, stream, args);
}
void quantize_rows(Stream& stream, const QuantizeRowsArgs& args) {
  const Span span(args.zone, args.x.rows);
  run(&OpTable::quantize_rows, stream, args);
}
void expert_sum(Stream& stream, const ExpertSumArgs& args) {
  const SpanChain chain;
  combine(stream, args.combine);
  if (args.merge.shared.data != nullptr) shared_expert_merge(stream, args.merge);
}
void residual_norm(Stream& stream, const ResidualNormArgs& args) {
  if (stream.backend().has(&OpTable::residual_norm, args)) {
    const Span span(args.norm.zone, args.residual.rows);
    return run(&OpTable::residual_norm, stream, args);
  }
  const SpanChain chain;
  if (args.experts != nullptr) {
    expert_sum(stream, *args.experts);
    ResidualNormArgs rest = args;
    rest.experts = nullptr;
    return residual_norm(stream, rest);
  }
  if (args.added.data != nullptr) add(stream, {.a = args.residual, .b = args.added, .out = args.residual});
  rms_norm(stream, args.norm);
  if (args.codes.codes.data != nullptr) quantize_rows(stream, args.codes);
}
void layer_norm(Stream& stream, const LayerNormArgs& args) {
  const Span span(Zone::kVisionNorm, args.out.rows);
  run(&OpTable::layer_norm, stream, args);
}
void vision_rope(Stream& stream, const VisionRopeArgs& args) {
  const Span span(Zone::kVisionRope, args.x.rows * args.x.cols / args.head_dim);
  run(&OpTable::vision_rope, stream, args);
}
void segment_attention(Stream& stream, const SegmentAttentionArgs& args) {
  const Span span(Zone::kVisionAttention, args.out.rows, count_row_keys(args.segment_ends));
  run(&OpTable::segment_attention, stream, args);
}

}  // namespace ferry

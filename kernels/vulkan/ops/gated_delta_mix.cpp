#include <algorithm>
#include <vector>

#include "kernels/vulkan/ops/conv_states.h"
#include "kernels/vulkan/ops/packs.h"
#include "kernels/vulkan/ops/vulkan_ops.h"
#include "kernels/vulkan/shaders/push_delta.h"
#include "runtime/base/check.h"

namespace ferry::vulkan {
namespace {

constexpr int64_t kMaxHeadDim = 128, kMaxKernel = 4;  // that the shader has room for

std::vector<DeltaMixSequence> describe(const GatedDeltaMixArgs& args) {
  std::vector<DeltaMixSequence> sequences;
  for (std::size_t s = 0; s < args.rule.sequences.size(); ++s) {
    sequences.push_back({.conv_state = args.conv.kernel > 1 ? reinterpret_cast<uint64_t>(args.conv.states[s]) : 0,
                         .state = reinterpret_cast<uint64_t>(args.rule.states[s]),
                         .row = u32(args.rule.sequences[s].first_row),
                         .unused = 0});
  }
  return sequences;
}

void tell_ranges(VulkanStream& stream, const GatedDeltaMixArgs& args, const std::vector<DeltaMixSequence>& sequences) {
  const GatedDeltaRuleArgs& rule = args.rule;
  const auto conv_bytes = static_cast<uint64_t>((args.conv.kernel - 1) * args.conv.x.cols * dtype_bytes(args.conv.x.dtype)),
             state_bytes = static_cast<uint64_t>(rule.num_v_heads * rule.k_dim * rule.v_dim) * sizeof(float);
  stream.reads(args.conv.x);
  stream.reads(args.conv.weight, args.conv.x.cols * args.conv.kernel);
  stream.reads(args.gates.a);
  stream.reads(args.gates.b);
  stream.reads(args.gates.a_log, rule.num_v_heads);
  stream.reads(args.gates.dt_bias, rule.num_v_heads);
  stream.reads(args.norm.gate);
  stream.reads(args.norm.weight, rule.v_dim);
  for (const DeltaMixSequence& sequence : sequences) {
    stream.reads(Range{sequence.conv_state, sequence.conv_state + conv_bytes});
    stream.reads(Range{sequence.state, sequence.state + state_bytes});
    stream.writes(Range{sequence.state, sequence.state + state_bytes});
  }
  stream.writes(args.norm.out);
}

}  // namespace

bool takes_gated_delta_mix(const GatedDeltaMixArgs& args) {
  const GatedDeltaRuleArgs& rule = args.rule;
  const bool fits =
      rule.k_dim <= kMaxHeadDim && rule.v_dim <= kMaxHeadDim && rule.v_dim % 4 == 0 && args.conv.kernel <= kMaxKernel &&
      args.conv.activation == Activation::kSilu &&
      std::ranges::all_of(rule.states, [](const float* state) { return is_aligned(reinterpret_cast<uint64_t>(state)); });
  return fits && !rule.sequences.empty() && std::ranges::all_of(rule.sequences, [](const SequenceSpan& span) {
           return span.form == DeltaForm::kRecurrent && span.num_tokens == 1 && span.num_replayed == 0 && span.num_held == 0;
         });
}

void gated_delta_mix(VulkanStream& stream, const GatedDeltaMixArgs& args) {
  const GatedDeltaRuleArgs& rule = args.rule;
  const GatedRmsNormArgs& norm = args.norm;
  FERRY_CHECK(norm.x.data == rule.out.data && norm.x.cols == rule.v_dim);
  FERRY_CHECK_EQ(norm.out.rows, rule.out.rows * rule.num_v_heads);
  const std::vector<DeltaMixSequence> sequences = describe(args);
  const DeltaMixPush push{.x = address_of(args.conv.x),
                          .conv_weight = address_of(args.conv.weight),
                          .a = address_of(args.gates.a),
                          .b = address_of(args.gates.b),
                          .a_log = address_of(args.gates.a_log),
                          .dt_bias = address_of(args.gates.dt_bias),
                          .gate = address_of(norm.gate),
                          .norm_weight = address_of(norm.weight),
                          .result = address_of(norm.out),
                          .sequences = stream.upload(std::span<const DeltaMixSequence>(sequences)),
                          .x_stride = stride_of(args.conv.x),
                          .a_stride = stride_of(args.gates.a),
                          .b_stride = stride_of(args.gates.b),
                          .gate_stride = stride_of(norm.gate),
                          .result_stride = stride_of(norm.out),
                          .num_sequences = u32(std::ssize(sequences)),
                          .num_k_heads = u32(rule.num_k_heads),
                          .num_v_heads = u32(rule.num_v_heads),
                          .eps = norm.eps,
                          .rounds_weighted = norm.weight_dtype == norm.out.dtype ? 1U : 0U};
  const auto slices = u32((rule.v_dim + kDeltaSliceColumns - 1) / kDeltaSliceColumns);
  const uint32_t aligned = is_aligned(push.norm_weight) ? are_aligned({norm.gate, norm.out}) : 0;
  tell_ranges(stream, args, sequences);
  stream.dispatch({find_shader("gated_delta_mix", args.conv.x.dtype),
                   {kDeltaInvocations * slices, aligned, u32(rule.k_dim), u32(rule.v_dim), u32(args.conv.kernel)}},
                  push, grid_of_rows(std::ssize(sequences) * rule.num_v_heads));
  update_conv_states(stream, args.conv);
}

}  // namespace ferry::vulkan

#include <vector>

#include "kernels/op_checks.h"
#include "kernels/vulkan/ops/conv_states.h"
#include "kernels/vulkan/ops/packs.h"
#include "kernels/vulkan/ops/views.h"
#include "kernels/vulkan/ops/vulkan_ops.h"
#include "kernels/vulkan/shaders/push_conv.h"
#include "runtime/base/check.h"

namespace ferry::vulkan {
namespace {

/// What the kernels work through: pieces of all sequences, and the sequences whose states a second dispatch changes, since
/// several workgroups have their tokens.
struct ConvPlan {
  explicit ConvPlan(const CausalConv1dArgs& args) {
    for (std::size_t s = 0; s < args.sequences.size(); ++s) {
      const SequenceSpan& span = args.sequences[s];
      const auto idx = static_cast<uint32_t>(s);
      sequences.push_back({.state = args.kernel > 1 ? reinterpret_cast<uint64_t>(args.states[s]) : 0,
                           .held = span.num_replayed > 0 ? reinterpret_cast<uint64_t>(args.held[s]) : 0,
                           .first_row = u32(span.first_row),
                           .num_tokens = u32(span.num_tokens),
                           .num_replayed = u32(span.num_replayed),
                           .num_taken = u32(span.num_taken())});
      for (int64_t first = 0; first < span.num_tokens; first += kConvTokens)
        tasks.push_back({.sequence = idx, .first_token = u32(first)});
      if (span.num_tokens > kConvTokens && args.kernel > 1) late_states.push_back({.sequence = idx, .first_token = 0});
    }
  }

  std::vector<ConvSequence> sequences;
  std::vector<ConvTask> tasks, late_states;
};

void check_conv(const CausalConv1dArgs& args) {
  check_same_shape(args.x, args.out);
  FERRY_CHECK_GE(args.kernel, 1);
  FERRY_CHECK(args.kernel == 1 || args.states.size() == args.sequences.size());
  for (const SequenceSpan& span : args.sequences) {
    FERRY_CHECK_LE(span.first_row + span.num_tokens, args.x.rows);
    FERRY_CHECK(span.num_replayed == 0 || args.held.size() == args.sequences.size());
  }
}

/// Tells of the inputs of a dispatch, and of the states that it reads or, where `are_changed` says so, changes too.
template <class AreChanged>
void tell_inputs(VulkanStream& stream, const CausalConv1dArgs& args, const ConvPlan& plan, AreChanged are_changed) {
  const auto row_bytes = static_cast<uint64_t>(args.x.cols * dtype_bytes(args.x.dtype));
  const uint64_t state_bytes = static_cast<uint64_t>(args.kernel - 1) * row_bytes;
  stream.reads(args.x);
  for (const ConvSequence& sequence : plan.sequences) {
    if (sequence.num_tokens == 0) continue;
    if (sequence.held != 0) stream.reads(Range{sequence.held, sequence.held + sequence.num_replayed * row_bytes});
    if (state_bytes == 0) continue;
    const Range state{sequence.state, sequence.state + state_bytes};
    stream.reads(state);
    if (are_changed(sequence)) stream.writes(state);
  }
}

/// Without the tasks.
ConvPush push_of(VulkanStream& stream, const CausalConv1dArgs& args, const ConvPlan& plan) {
  return {.x = address_of(args.x),
          .weight = address_of(args.weight),
          .result = address_of(args.out),
          .sequences = stream.upload(std::span<const ConvSequence>(plan.sequences)),
          .tasks = 0,
          .x_stride = stride_of(args.x),
          .result_stride = stride_of(args.out),
          .channels = u32(args.x.cols),
          .num_tasks = 0};
}

int64_t num_blocks(const CausalConv1dArgs& args) { return (args.x.cols + kConvInvocations - 1) / kConvInvocations; }

Kernel kernel_of(const char* shader, const CausalConv1dArgs& args) {
  return {find_shader(shader, args.x.dtype),
          {kConvInvocations, u32(args.kernel), args.activation == Activation::kSilu ? 1u : 0u}};
}

void dispatch_states(VulkanStream& stream, const CausalConv1dArgs& args, ConvPush push, const std::vector<ConvTask>& tasks) {
  push.tasks = stream.upload(std::span<const ConvTask>(tasks));
  push.num_tasks = u32(std::ssize(tasks));
  stream.dispatch(kernel_of("causal_conv1d_state", args), push, grid_of_rows(push.num_tasks * num_blocks(args)));
}

}  // namespace

void causal_conv1d(VulkanStream& stream, const CausalConv1dArgs& args) {
  check_conv(args);
  const ConvPlan plan(args);
  if (plan.tasks.empty()) return;
  ConvPush push = push_of(stream, args, plan);
  push.tasks = stream.upload(std::span<const ConvTask>(plan.tasks));
  push.num_tasks = u32(std::ssize(plan.tasks));
  tell_inputs(stream, args, plan, [](const ConvSequence& sequence) { return sequence.num_tokens <= kConvTokens; });
  stream.reads(args.weight, args.x.cols * args.kernel);
  stream.writes(args.out);
  stream.dispatch(kernel_of("causal_conv1d", args), push, grid_of_rows(push.num_tasks * num_blocks(args)));
  if (plan.late_states.empty()) return;
  tell_inputs(stream, args, plan, [](const ConvSequence& sequence) { return sequence.num_tokens > kConvTokens; });
  dispatch_states(stream, args, push, plan.late_states);
}

void update_conv_states(VulkanStream& stream, const CausalConv1dArgs& args) {
  const ConvPlan plan(args);
  if (args.kernel == 1 || plan.tasks.empty()) return;
  std::vector<ConvTask> tasks;
  for (std::size_t s = 0; s < plan.sequences.size(); ++s)
    tasks.push_back({.sequence = u32(std::ssize(tasks)), .first_token = 0});
  tell_inputs(stream, args, plan, [](const ConvSequence&) { return true; });
  dispatch_states(stream, args, push_of(stream, args, plan), tasks);
}

}  // namespace ferry::vulkan

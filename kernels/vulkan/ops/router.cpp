#include <algorithm>
#include <bit>

#include "kernels/vulkan/ops/views.h"
#include "kernels/vulkan/ops/vulkan_ops.h"
#include "kernels/vulkan/shaders/push_router.h"
#include "runtime/base/check.h"

namespace ferry::vulkan {
namespace {

constexpr int64_t kMaxRoutedExperts = 4096;  // an invocation keeps its share in registers
constexpr uint32_t kLeastExpertRoom = 256;   // more is a power of two
constexpr int64_t kMaxListedExperts = 512;   // of choose_experts
constexpr uint32_t kListInvocations = 512;   // of its workgroup, each of which places a slot

void check_router(const RouterTopkArgs& args) {
  FERRY_CHECK_LE(args.logits.cols, kMaxRoutedExperts);
  FERRY_CHECK_GE(args.top_k, 1);
  FERRY_CHECK_LE(args.top_k, args.logits.cols);
}

void tell_router(VulkanStream& stream, const RouterTopkArgs& args) {
  const int64_t size = args.logits.rows * args.top_k;
  stream.reads(args.logits);
  if (args.bias) stream.reads(args.bias, args.logits.cols);
  stream.writes(args.topk_idx, size);
  stream.writes(args.topk_weights, size);
}

uint32_t expert_room(const RouterTopkArgs& args) {
  return std::max(kLeastExpertRoom, std::bit_ceil(static_cast<uint32_t>(args.logits.cols)));
}

/// Subgroups of choose_experts that share a token: one for each expert that an invocation would have, if there are enough.
uint32_t team_size(const RouterTopkArgs& args, uint32_t subgroup) {
  const uint32_t subgroups = kListInvocations / subgroup, team = std::min(expert_room(args) / subgroup, subgroups);
  return args.logits.rows * team <= subgroups ? team : 1;
}

}  // namespace

void router_topk(VulkanStream& stream, const RouterTopkArgs& args) {
  check_router(args);
  tell_router(stream, args);
  const RouterTopkPush push{.logits = address_of(args.logits),
                            .bias = address_of(args.bias),
                            .topk_idx = address_of(args.topk_idx),
                            .topk_weights = address_of(args.topk_weights),
                            .logits_stride = stride_of(args.logits),
                            .rows = static_cast<uint32_t>(args.logits.rows),
                            .num_experts = static_cast<uint32_t>(args.logits.cols),
                            .top_k = static_cast<uint32_t>(args.top_k),
                            .is_sigmoid = args.is_sigmoid ? 1U : 0U,
                            .is_normalised = args.is_normalised ? 1U : 0U,
                            .sum_eps = args.sum_eps,
                            .scale = args.scale};
  const uint32_t subgroup = stream.traits().subgroup_size;
  stream.dispatch({find_shader("router_topk", args.logits.dtype), {kRowInvocations, expert_room(args), subgroup, 1}}, push,
                  grid_of_elements(args.logits.rows, kRowInvocations / subgroup));
}

bool takes_choose_experts(const ExpertChoiceArgs& args) {
  return args.rows.num_experts <= kMaxListedExperts && args.rows.num_tokens * args.rows.top_k <= kListInvocations;
}

void choose_experts(VulkanStream& stream, const ExpertChoiceArgs& args) {
  const RouterTopkArgs& router = args.router;
  const ExpertRowsArgs& rows = args.rows;
  const int64_t num_slots = rows.num_tokens * rows.top_k;
  check_router(router);
  FERRY_CHECK(router.logits.rows == rows.num_tokens && router.top_k == rows.top_k && router.logits.cols == rows.num_experts);
  if (num_slots == 0) return;
  tell_router(stream, router);
  stream.writes(rows.row_token, num_slots);
  stream.writes(rows.slot_row, num_slots);
  stream.writes(rows.row_runs, num_slots);
  stream.writes(rows.counts, rows.num_experts);
  stream.writes(rows.row_totals, rows.num_experts);
  const ExpertChoicePush push{.logits = address_of(router.logits),
                              .bias = address_of(router.bias),
                              .topk_idx = address_of(router.topk_idx),
                              .topk_weights = address_of(router.topk_weights),
                              .row_token = address_of(rows.row_token),
                              .slot_row = address_of(rows.slot_row),
                              .counts = address_of(rows.counts),
                              .row_runs = address_of(rows.row_runs),
                              .row_totals = address_of(rows.row_totals),
                              .logits_stride = stride_of(router.logits),
                              .num_tokens = static_cast<uint32_t>(rows.num_tokens),
                              .num_experts = static_cast<uint32_t>(rows.num_experts),
                              .top_k = static_cast<uint32_t>(rows.top_k),
                              .is_sigmoid = router.is_sigmoid ? 1U : 0U,
                              .is_normalised = router.is_normalised ? 1U : 0U,
                              .sum_eps = router.sum_eps,
                              .scale = router.scale};
  const uint32_t subgroup = stream.traits().subgroup_size;
  stream.dispatch({find_shader("choose_experts", router.logits.dtype),
                   {kListInvocations, expert_room(router), subgroup, team_size(router, subgroup)}},
                  push, {});
}

}  // namespace ferry::vulkan

#include <algorithm>
#include <bit>

#include "kernels/vulkan/ops/views.h"
#include "kernels/vulkan/ops/vulkan_ops.h"
#include "kernels/vulkan/shaders/push_router.h"

namespace ferry::vulkan {
namespace {

// What fits into shared memory of 32 KiB beside the chosen.
constexpr int64_t kMaxExperts = 4096;
constexpr uint32_t kLeastExpertRoom = 256;

}  // namespace

void router_topk(VulkanStream& stream, const RouterTopkArgs& args) {
  const int64_t num_experts = args.logits.cols, size = args.logits.rows * args.top_k;
  FERRY_CHECK_LE(num_experts, kMaxExperts);
  FERRY_CHECK_GE(args.top_k, 1);
  FERRY_CHECK_LE(args.top_k, std::min<int64_t>(num_experts, kMaxChosenExperts));
  stream.reads(args.logits);
  if (args.bias) stream.reads(args.bias, num_experts);
  stream.writes(args.topk_idx, size);
  stream.writes(args.topk_weights, size);
  const RouterTopkPush push{.logits = address_of(args.logits),
                            .bias = address_of(args.bias),
                            .topk_idx = address_of(args.topk_idx),
                            .topk_weights = address_of(args.topk_weights),
                            .logits_stride = stride_of(args.logits),
                            .rows = static_cast<uint32_t>(args.logits.rows),
                            .num_experts = static_cast<uint32_t>(num_experts),
                            .top_k = static_cast<uint32_t>(args.top_k),
                            .is_sigmoid = args.is_sigmoid ? 1U : 0U,
                            .is_normalised = args.is_normalised ? 1U : 0U,
                            .sum_eps = args.sum_eps,
                            .scale = args.scale};
  const uint32_t room = std::max(kLeastExpertRoom, std::bit_ceil(push.num_experts));
  stream.dispatch({find_shader("router_topk", args.logits.dtype), {kRowInvocations, room}}, push,
                  grid_of_rows(args.logits.rows));
}

}  // namespace ferry::vulkan

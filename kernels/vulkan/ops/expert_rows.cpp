#include <algorithm>

#include "kernels/vulkan/ops/views.h"
#include "kernels/vulkan/ops/vulkan_ops.h"
#include "kernels/vulkan/shaders/push_rows.h"
#include "runtime/base/check.h"

namespace ferry::vulkan {
namespace {

constexpr int64_t kMaxTiledExperts = 1024;  // that the shaders have room for
constexpr uint32_t kInvocations = 512;

/// Where each expert's rows begin.
int64_t first_rows_bytes_of(int64_t num_experts) { return num_experts * int64_t{sizeof(int32_t)}; }

}  // namespace

int64_t expert_rows_scratch_bytes(const OpLimits& limits) { return first_rows_bytes_of(limits.num_experts); }

void expert_rows(VulkanStream& stream, const ExpertRowsArgs& args) {
  FERRY_CHECK_LE(args.num_experts, kMaxTiledExperts);
  const int64_t num_slots = args.num_tokens * args.top_k;
  const auto first_rows_bytes = static_cast<std::size_t>(first_rows_bytes_of(args.num_experts));
  const uint64_t first_rows = stream.scratch(first_rows_bytes);
  const Range first_rows_range{first_rows, first_rows + first_rows_bytes};
  const ExpertRowsPush push{.topk_idx = address_of(args.topk_idx),
                            .row_token = address_of(args.row_token),
                            .slot_row = address_of(args.slot_row),
                            .counts = address_of(args.counts),
                            .first_rows = first_rows,
                            .row_runs = address_of(args.row_runs),
                            .row_totals = address_of(args.row_totals),
                            .num_slots = static_cast<uint32_t>(num_slots),
                            .top_k = static_cast<uint32_t>(args.top_k),
                            .num_experts = static_cast<uint32_t>(args.num_experts)};
  const bool places_at_once = num_slots <= kInvocations;
  const auto touches_rows = [&] {
    stream.reads(args.topk_idx, num_slots);
    stream.writes(args.row_token, num_slots);
    stream.writes(args.slot_row, num_slots);
    stream.writes(args.row_runs, num_slots);
  };
  stream.writes(args.counts, args.num_experts);
  stream.writes(args.row_totals, args.num_experts);
  stream.writes(first_rows_range);
  if (places_at_once) {
    touches_rows();
  } else {
    stream.reads(args.topk_idx, num_slots);
  }
  stream.dispatch({find_shader("expert_counts"), {kInvocations, places_at_once ? 1U : 0U}}, push, {});
  if (places_at_once) return;
  touches_rows();
  stream.reads(first_rows_range);
  stream.dispatch({find_shader("expert_places"), {kInvocations}}, push, {static_cast<uint32_t>(args.num_experts)});
}

}  // namespace ferry::vulkan

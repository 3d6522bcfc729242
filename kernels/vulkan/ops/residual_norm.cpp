#include "kernels/op_checks.h"
#include "kernels/vulkan/ops/packs.h"
#include "kernels/vulkan/ops/vulkan_ops.h"
#include "kernels/vulkan/shaders/push_norm.h"
#include "runtime/base/check.h"

namespace ferry::vulkan {
namespace {

constexpr int64_t kMaxSlots = 16;  // of a token, that the shader sums up
/// Of rows that leave most of a large device idle, each is worked on by twice as many invocations.
constexpr int64_t kFewRows = 128;

/// What is added to the residual, of rows or of experts. Returns whether all of it begins at multiples of 16 bytes.
bool tell_addend(VulkanStream& stream, const ResidualNormArgs& args, ResidualNormPush& push) {
  check_same_shape(args.added, args.residual);
  if (args.experts == nullptr) {
    stream.reads(args.added);
    push.added = address_of(args.added);
    push.added_stride = stride_of(args.added);
    return is_aligned(args.added);
  }
  const CombineArgs& combine = args.experts->combine;
  const SharedExpertMergeArgs& merge = args.experts->merge;
  FERRY_CHECK(combine.out.data == args.added.data);
  const int64_t num_slots = args.residual.rows * combine.num_slots;
  stream.reads(combine.rows);
  stream.reads(combine.slot_row, num_slots);
  stream.reads(combine.slot_weights, num_slots);
  push.added = address_of(combine.rows);
  push.added_stride = stride_of(combine.rows);
  push.slot_row = address_of(combine.slot_row);
  push.slot_weights = address_of(combine.slot_weights);
  if (merge.shared.data == nullptr) return is_aligned(combine.rows);
  check_same_shape(merge.shared, args.residual);
  stream.reads(merge.shared);
  stream.reads(merge.gate);
  push.shared_row = address_of(merge.shared);
  push.shared_stride = stride_of(merge.shared);
  push.shared_gate = address_of(merge.gate);
  push.gate_stride = stride_of(merge.gate);
  return are_aligned({combine.rows, merge.shared}) != 0;
}

/// Likewise of the codes.
bool tell_codes(VulkanStream& stream, const ResidualNormArgs& args, ResidualNormPush& push) {
  const QuantizeRowsArgs& codes = args.codes;
  FERRY_CHECK(codes.x.data == args.norm.out.data);
  stream.writes(codes.codes);
  stream.writes(codes.scales, codes.x.rows);
  push.codes = address_of(codes.codes);
  push.scales = address_of(codes.scales);
  push.codes_stride = stride_of(codes.codes);
  push.codes_cols = static_cast<uint32_t>(codes.codes.cols);
  return is_aligned(codes.codes);
}

}  // namespace

bool takes_residual_norm(const ResidualNormArgs& args) {
  return args.experts == nullptr ||
         (args.experts->combine.rows.data != nullptr && args.experts->combine.num_slots <= kMaxSlots);
}

void residual_norm(VulkanStream& stream, const ResidualNormArgs& args) {
  const RmsNormArgs& norm = args.norm;
  check_same_shape(args.residual, norm.out);
  FERRY_CHECK(norm.x.data == args.residual.data);
  ResidualNormPush push{.residual = address_of(args.residual),
                        .weight = address_of(norm.weight),
                        .result = address_of(norm.out),
                        .residual_stride = stride_of(args.residual),
                        .result_stride = stride_of(norm.out),
                        .rows = static_cast<uint32_t>(norm.x.rows),
                        .cols = static_cast<uint32_t>(norm.x.cols),
                        .eps = norm.eps};
  stream.reads(args.residual);
  stream.reads(norm.weight, norm.x.cols);
  stream.writes(norm.out);
  bool aligned = are_aligned({args.residual, norm.out}) && is_aligned(push.weight);
  if (args.added.data != nullptr) {
    stream.writes(args.residual);
    aligned = tell_addend(stream, args, push) && aligned;
  }
  if (args.codes.codes.data != nullptr) aligned = tell_codes(stream, args, push) && aligned;
  const RowTeams teams = teams_for(stream, norm.out);
  const bool is_half = teams.are_subgroups == 0 && norm.out.rows <= kFewRows;  // packs
  const ExpertSumArgs* experts = args.experts;
  const auto num_slots = static_cast<uint32_t>(experts != nullptr ? experts->combine.num_slots : 0);
  stream.dispatch({find_shader(is_half ? "residual_norm_half" : "residual_norm", norm.out.dtype),
                   {is_half ? 2 * kRowInvocations : kRowInvocations, aligned ? 1U : 0U, teams.are_subgroups, teams.packs,
                    norm.rounds_first ? 1U : 0U, push.added != 0 ? 1U : 0U, num_slots, push.shared_row != 0 ? 1U : 0U}},
                  push, teams.grid);
}

}  // namespace ferry::vulkan

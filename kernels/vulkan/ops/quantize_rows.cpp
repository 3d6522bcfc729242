#include "kernels/op_checks.h"
#include "kernels/vulkan/ops/packs.h"
#include "kernels/vulkan/ops/vulkan_ops.h"
#include "kernels/vulkan/shaders/push_rows.h"

namespace ferry::vulkan {

void quantize_rows(VulkanStream& stream, const QuantizeRowsArgs& args) {
  check_quantized_shape(args);
  stream.reads(args.x);
  stream.writes(args.codes);
  stream.writes(args.scales, args.x.rows);
  const QuantizeRowsPush push{.x = address_of(args.x),
                              .codes = address_of(args.codes),
                              .scales = address_of(args.scales),
                              .x_stride = stride_of(args.x),
                              .codes_stride = stride_of(args.codes),
                              .rows = static_cast<uint32_t>(args.x.rows),
                              .cols = static_cast<uint32_t>(args.x.cols),
                              .codes_cols = static_cast<uint32_t>(args.codes.cols)};
  const RowTeams teams = teams_for(stream, args.x);
  stream.dispatch({find_shader("quantize_rows", args.x.dtype),
                   {kRowInvocations, are_aligned({args.x, args.codes}), teams.are_subgroups, teams.packs}},
                  push, teams.grid);
}

}  // namespace ferry::vulkan

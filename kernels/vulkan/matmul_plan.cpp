#include "kernels/vulkan/matmul_plan.h"

#include <algorithm>

#include "kernels/vulkan/pack_weights.h"

namespace ferry::vulkan {
namespace {

/// Rows of a group that a tile should hold: all of one group's; of several, whose sizes differ, half more than they have in the
/// mean, so that few need a second tile.
int64_t wanted_rows(const ProductShape& shape) {
  if (shape.num_groups <= 1) return shape.num_rows;
  return (3 * shape.num_rows + 2 * shape.num_groups - 1) / (2 * shape.num_groups);
}

/// The smallest of `sizes`, ascending, that holds `rows`, or the largest.
template <std::size_t kCount>
int64_t size_for(int64_t rows, const std::array<int64_t, kCount>& sizes) {
  const auto fitting = std::lower_bound(sizes.begin(), sizes.end(), rows);
  return fitting == sizes.end() ? sizes.back() : *fitting;
}

/// What all kernels begin with; their own constants follow.
MatmulPlan make_plan(const char* shader, const ProductShape& shape, uint32_t invocations, int64_t tile_rows,
                     int64_t part_panels, std::initializer_list<int64_t> constants) {
  MatmulPlan plan{.shader = shader, .tile_rows = tile_rows, .part_panels = part_panels};
  plan.constants = {invocations, shape.has_pieces ? 1U : 0U, shape.is_gated ? 1U : 0U};
  std::transform(constants.begin(), constants.end(), plan.constants.begin() + 3,
                 [](int64_t value) { return static_cast<uint32_t>(value); });
  return plan;
}

constexpr uint32_t kSlotsInvocations = 256;  // 16 columns x 16 slots

MatmulPlan plan_slots(const ProductShape& shape) {
  const bool is_e4m3 = shape.type.format == WeightFormat::kE4M3;
  const int64_t wanted = wanted_rows(shape);
  // A group of one row has nothing to share; with a row more, reading weights twice costs more than rows that are not there.
  const int64_t rows = shape.num_rows == shape.num_groups ? 1 : size_for(wanted, std::array<int64_t, 2>{4, is_e4m3 ? 8 : 16});
  const char* shader = is_e4m3                                    ? "slots_matmul_e4m3"
                       : shape.type.format == WeightFormat::kInt8 ? "slots_matmul_int8"
                                                                  : "slots_matmul";
  // Up to 16 KiB of staged x: 512 bytes a row, tile and slot's step, twice that of e4m3.
  const int64_t steps = is_e4m3 ? (rows == 1 ? 4 : rows == 4 ? 2 : 1) : (rows == 1 ? 8 : rows == 4 ? 2 : 1);
  return make_plan(shader, shape, kSlotsInvocations, rows, 2, {rows, steps});
}

MatmulPlan plan_int4_slots(const ProductShape& shape) {
  const int64_t rows = shape.num_rows == shape.num_groups ? 1 : size_for(wanted_rows(shape), std::array<int64_t, 3>{4, 16, 64});
  const int64_t slots = rows == 1 ? 16 : rows == 4 ? 4 : 1;  // parts of k
  const int64_t stage_tiles = rows == 1 ? 64 : rows == 4 ? 16 : rows == 16 ? 8 : 4;
  return make_plan("slots_matmul_int4", shape, kSlotsInvocations, rows, 2,
                   {rows, stage_tiles, shape.type.is_wide ? 1 : 0, slots});
}

}  // namespace

MatmulPlan plan_product(const DeviceTraits& traits, const ProductShape& shape) {
  (void)traits;
  return shape.type.format == WeightFormat::kInt4 ? plan_int4_slots(shape) : plan_slots(shape);
}

}  // namespace ferry::vulkan

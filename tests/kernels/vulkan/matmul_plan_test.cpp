#include "kernels/vulkan/matmul_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/vulkan/pack_weights.h"

namespace ferry::vulkan {
namespace {

/// A large device with units for matrices.
DeviceTraits large_device() {
  return {.subgroup_size = 32,
          .shared_bytes = 49152,
          .max_invocations = 1024,
          .bf16 = {16, 16, 16},
          .f16 = {16, 16, 16},
          .int8 = {16, 16, 32},
          .has_packed_dot = true};
}
DeviceTraits plain_device(uint32_t subgroup_size) {
  return {.subgroup_size = subgroup_size, .shared_bytes = 32768, .max_invocations = 512};
}

ProductShape shape_of(WeightType type, int64_t n, int64_t k, int64_t rows, int64_t groups = 1) {
  const PackedLayout layout{.n = n, .k = k, .type = type};
  return {.type = type,
          .dtype = DType::kBF16,
          .has_pieces = true,
          .k = k,
          .num_panels = layout.num_panels(),
          .num_rows = rows,
          .num_groups = groups};
}
std::string shader_of(const DeviceTraits& traits, const ProductShape& shape) { return plan_product(traits, shape).shader; }

constexpr WeightType kBF16{WeightFormat::kBF16};
constexpr WeightType kInt8{WeightFormat::kInt8};
constexpr WeightType kInt4{WeightFormat::kInt4, 64};

TEST(MatmulPlan, RowsAndUnitsChooseTheKernel) {
  const DeviceTraits large = large_device(), plain = plain_device(32);
  EXPECT_EQ(shader_of(large, shape_of(kBF16, 4096, 2048, 1)), "stream_matmul");
  EXPECT_EQ(shader_of(large, shape_of(kBF16, 12352, 2048, 2048)), "tile_matmul");
  EXPECT_EQ(shader_of(large, shape_of(kInt8, 4096, 2048, 1)), "dot_matmul_int8");
  EXPECT_EQ(shader_of(large, shape_of(kInt8, 4096, 2048, 16)), "stream_matmul_int8");
  EXPECT_EQ(shader_of(large, shape_of(kInt8, 12352, 2048, 2048)), "tile_matmul_int8");
  EXPECT_EQ(shader_of(large, shape_of(kBF16, 12352, 2048, 64)), "stream_matmul");
  EXPECT_EQ(shader_of(large, shape_of(kInt8, 12352, 2048, 64)), "tile_matmul_int8");
  EXPECT_EQ(shader_of(large, shape_of(kBF16, 248320, 2048, 64)), "tile_matmul");
  EXPECT_EQ(shader_of(large, shape_of(kInt8, 2048, 4096, 64)), "stream_matmul_int8");
  EXPECT_EQ(shader_of(large, shape_of(kInt4, 4096, 2048, 1)), "dot_matmul_int4");
  EXPECT_EQ(shader_of(large, shape_of(kInt4, 2048, 4096, 16)), "dot_matrix_int4");
  EXPECT_EQ(shader_of(large, shape_of(kInt4, 2048, 4096, 64)), "dot_matrix_int4");
  EXPECT_EQ(shader_of(large, shape_of(kInt4, 12352, 2048, 16)), "dot_matmul_int4");
  EXPECT_EQ(shader_of(large, shape_of(kInt4, 1024, 2048, 512, 222)), "dot_matmul_int4");
  EXPECT_EQ(shader_of(large, shape_of(kInt4, 12352, 2048, 2048)), "tile_matmul_int4");
  EXPECT_EQ(shader_of(large, shape_of({WeightFormat::kF32}, 4096, 2048, 512)), "slots_matmul");
  EXPECT_EQ(shader_of(large, shape_of({WeightFormat::kE4M3, 128}, 4096, 2048, 512)), "slots_matmul_e4m3");
  for (const int64_t rows : {1, 2048}) {
    EXPECT_EQ(shader_of(plain, shape_of(kBF16, 4096, 2048, rows)), "slots_matmul");
    EXPECT_EQ(shader_of(plain, shape_of(kInt8, 4096, 2048, rows)), "dot_matmul_int8");
    EXPECT_EQ(shader_of(plain, shape_of(kInt4, 4096, 2048, rows)), "dot_matmul_int4");
  }
}

/// The arithmetic of a rounded format must not depend on the number of rows.
TEST(MatmulPlan, AFormatHasOneArithmeticOnADevice) {
  for (const DeviceTraits& traits : {large_device(), plain_device(8), plain_device(64)}) {
    for (const WeightType type : {WeightType{WeightFormat::kF32}, kBF16, WeightType{WeightFormat::kE4M3, 128}}) {
      const bool has_slots = shader_of(traits, shape_of(type, 2048, 4096, 1)).starts_with("slots");
      for (int64_t rows = 1; rows <= 4096; rows += 1 + rows / 3) {
        for (const int64_t groups : {int64_t{1}, (rows + 1) / 2, rows})
          EXPECT_EQ(shader_of(traits, shape_of(type, 2048, 4096, rows, groups)).starts_with("slots"), has_slots) << rows;
      }
    }
  }
}

/// Fragments of processors that emulate them, or that do not fit a tile, are left alone.
TEST(MatmulPlan, OddFragmentsAreNotUsed) {
  DeviceTraits traits = large_device();
  for (const Fragment odd : {Fragment{8, 8, 8}, Fragment{32, 8, 16}, Fragment{16, 32, 16}, Fragment{16, 16, 64}}) {
    traits.bf16 = traits.int8 = odd;
    EXPECT_EQ(shader_of(traits, shape_of(kBF16, 4096, 2048, 16)), "slots_matmul");
    EXPECT_EQ(shader_of(traits, shape_of(kInt8, 4096, 2048, 16)), "dot_matmul_int8");
  }
  traits.bf16 = {16, 8, 16};
  EXPECT_EQ(shader_of(traits, shape_of(kBF16, 4096, 2048, 16)), "stream_matmul");
}

/// A workgroup is whole subgroups and at most 256 invocations, its panels are pairs where weights are gated, and each part of a
/// shape is somebody's.
TEST(MatmulPlan, WorkgroupsFitTheDevice) {
  for (const DeviceTraits& base : {large_device(), plain_device(8), plain_device(32), plain_device(64)}) {
    for (const WeightType type : {kBF16, kInt8, kInt4, WeightType{WeightFormat::kInt4, 32, true}}) {
      for (const int64_t n : {64, 2048, 248320}) {
        for (int64_t rows = 1; rows <= 4096; rows *= 2) {
          ProductShape shape = shape_of(type, n, 4096, rows);
          for (const bool is_gated : {false, true}) {
            shape.is_gated = is_gated;
            const MatmulPlan plan = plan_product(base, shape);
            EXPECT_LE(plan.constants[0], 256U) << plan.shader;
            EXPECT_EQ(plan.constants[0] % base.subgroup_size, 0U) << plan.shader;
            EXPECT_GE(plan.tile_rows, 1) << plan.shader;
            EXPECT_GE(plan.part_panels, is_gated ? 2 : 1) << plan.shader;
            EXPECT_TRUE(!is_gated || plan.part_panels % 2 == 0) << plan.shader;
          }
        }
      }
    }
  }
}

/// Of packed dot products every element has an invocation in the end, and all k a slot; what elements' parts come to fits in
/// the least shared memory that a device may have where groups are not halves of tiles.
TEST(MatmulPlan, DotsHaveAnInvocationForEachElement) {
  for (const WeightType type : {kInt8, kInt4, WeightType{WeightFormat::kInt4, 32}, WeightType{WeightFormat::kInt4, 256}}) {
    for (const int64_t k : {256, 512, 2048, 16384}) {
      for (const int64_t n : {32, 2048, 248320}) {
        for (const int64_t rows : {1, 3, 8}) {
          for (const bool is_gated : {false, true}) {
            ProductShape shape = shape_of(type, n, k, rows);
            shape.is_gated = is_gated;
            const MatmulPlan plan = plan_product(plain_device(32), shape);
            ASSERT_TRUE(std::string(plan.shader).starts_with("dot_matmul")) << plan.shader;
            const int64_t panels = plan.constants[4], slot_tiles = plan.constants[5], slots = plan.constants[8];
            const int64_t elements = plan.tile_rows * plan.part_panels * kPanelRows;
            EXPECT_EQ(plan.part_panels * slots, panels * 16);
            EXPECT_LE(elements, plan.constants[0]);
            EXPECT_EQ(slots * slot_tiles * tile_k(type.format) % std::max(type.group_size, 1), 0);
            const bool is_half = type.format == WeightFormat::kInt4 && type.group_size == 32;
            const int64_t parts = type.format == WeightFormat::kInt8 ? slots : slots * slot_tiles * (is_half ? 2 : 1);
            EXPECT_LE(parts * elements * 4, is_half ? 32768 : 16384);
          }
        }
      }
    }
  }
}

/// Subgroups that share rows of x are several to a segment; of groups of few rows none share.
TEST(MatmulPlan, StreamsShareRows) {
  for (const WeightType type : {kBF16, kInt8}) {
    for (const int64_t n : {1024, 2048, 12352}) {
      for (const int64_t rows : {16, 32, 64}) {
        for (const int64_t groups : {1, 4}) {
          const MatmulPlan plan = plan_product(large_device(), shape_of(type, n, 2048, rows * groups, groups));
          if (!std::string(plan.shader).starts_with("stream_matmul")) continue;
          const int64_t subgroups = plan.constants[0] / 32, segment_slots = plan.constants[8];
          EXPECT_EQ(plan.constants[11], groups == 1 && segment_slots < subgroups ? 1U : 0U) << n << " x " << rows;
          EXPECT_EQ(subgroups % segment_slots, 0);
          const int64_t row_slots = plan.constants[11] != 0 ? segment_slots : subgroups;
          EXPECT_LE(row_slots * plan.tile_rows * (2 * plan.constants[10] + 1) * 16 + subgroups * 1024, 49152);
        }
      }
    }
  }
}

/// Of kernels that stage tiles, invocations load whole pieces, subgroups take whole fragments (and gates with their ups), and
/// all fits in shared memory.
TEST(MatmulPlan, TilesAreWholePieces) {
  for (const uint32_t subgroup_size : {8U, 16U, 32U, 64U}) {
    for (const uint32_t fragment_rows : {8U, 16U}) {
      DeviceTraits traits = large_device();
      traits.subgroup_size = subgroup_size;
      traits.shared_bytes = 32768;
      traits.bf16.n = traits.int8.n = fragment_rows;
      int num_plans = 0;
      for (const WeightType type : {kBF16, kInt8, kInt4}) {
        for (const int64_t n : {512, 2048, 12352}) {
          for (const int64_t groups : {1, 64}) {
            for (int64_t rows = 128; rows <= 16384; rows *= 2) {
              ProductShape shape = shape_of(type, n, 2048, rows, groups);
              shape.is_gated = n == 2048;
              const MatmulPlan plan = plan_product(traits, shape);
              if (!std::string(plan.shader).starts_with("tile_matmul")) continue;
              ++num_plans;
              const int64_t invocations = plan.constants[0], panels = plan.part_panels, slots = plan.constants[9];
              const int64_t subgroups = invocations / subgroup_size;
              const int64_t panel_pieces = type.format == WeightFormat::kInt4 ? 32 : 64;
              EXPECT_EQ(panels * panel_pieces % invocations, 0) << panels << " panels by " << invocations;
              EXPECT_EQ(plan.tile_rows * 4 % invocations, 0) << plan.tile_rows << " rows by " << invocations;
              EXPECT_EQ(subgroups % slots, 0);
              EXPECT_EQ(panels % (shape.is_gated ? 2 * slots : slots), 0);
              EXPECT_EQ(plan.tile_rows % (subgroups / slots * fragment_rows), 0);
              EXPECT_LE((panels * kPanelRows + plan.tile_rows) * 80 + panels * kPanelRows * 8, 32768);
              EXPECT_LE(subgroups / slots * panels * kPanelRows * fragment_rows * 5 + panels * kPanelRows * 8, 32768);
            }
          }
        }
      }
      EXPECT_GT(num_plans, 0) << "subgroups of " << subgroup_size;
    }
  }
}

}  // namespace
}  // namespace ferry::vulkan

#include "kernels/vulkan/row_proof.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/backend.h"
#include "kernels/vulkan/matmul_plan.h"
#include "kernels/vulkan/pack_weights.h"
#include "tests/support/test_stream.h"
#include "tests/support/vulkan_device.h"

namespace ferry::vulkan {
namespace {

constexpr WeightType kBf16{WeightFormat::kBF16}, kInt8{WeightFormat::kInt8}, kInt4{WeightFormat::kInt4, 64};

RowProof small_proof(WeightType type) { return {.type = type, .n = 64, .k = 192, .batches = {{16}, {64}, {100}, {102, 3}}}; }

/// The reference, but for the last bit of one row in products of one group of more than `most_rows` rows, or of several such:
/// as of a device that sums some rows of a tile in another order.
class FaultyMatmul final : public Matmul {
 public:
  enum class In : uint8_t { kOneGroup, kSeveral };
  FaultyMatmul(int64_t most_rows, int64_t faulty_row, In in = In::kOneGroup)
      : most_rows_(most_rows), faulty_row_(faulty_row), in_(in) {}

  const char* name() const override { return "faulty"; }
  std::unique_ptr<PackedMatrix> pack(ConstMatrixView weights, WeightUse use, ThreadPool* pool) override {
    return ref_->pack(weights, use, pool);
  }
  std::unique_ptr<PackedMatrix> pack(const QuantizedMatrix& weights, WeightUse use, ThreadPool* pool) override {
    return ref_->pack(weights, use, pool);
  }
  void grouped_matmul(Stream& stream, const GroupedMatmulArgs& args) override {
    ref_->grouped_matmul(stream, args);
    const bool is_faulty = args.counts.front() > most_rows_ && (args.counts.size() > 1) == (in_ == In::kSeveral);
    if (is_faulty) args.out.row_bytes(faulty_row_)[0] ^= std::byte{1};
  }

 private:
  std::unique_ptr<Matmul> ref_ = make_ref_matmul();
  int64_t most_rows_, faulty_row_;
  In in_;
};

bool stand_alone(std::unique_ptr<Matmul> matmul, const RowProof& proof) {
  ThreadPool pool(2);
  const Backend backend("test", available_op_tables(), std::move(matmul));
  Stream stream(backend, pool);
  return rows_stand_alone(stream, proof);
}

TEST(RowProof, HoldsOnTheCpu) {
  for (const WeightType type : {kBf16, kInt8, kInt4}) {
    EXPECT_TRUE(stand_alone(make_ref_matmul(), small_proof(type))) << weight_type_name(type);
    EXPECT_TRUE(stand_alone(select_matmul("auto", DType::kBF16), small_proof(type))) << weight_type_name(type);
  }
}

TEST(RowProof, OneBitOfOneRowIsSeen) {
  for (const WeightType type : {kBf16, kInt8, kInt4}) {
    EXPECT_FALSE(stand_alone(std::make_unique<FaultyMatmul>(16, 63), small_proof(type))) << weight_type_name(type);
    EXPECT_FALSE(stand_alone(std::make_unique<FaultyMatmul>(64, 99), small_proof(type))) << weight_type_name(type);
    EXPECT_TRUE(stand_alone(std::make_unique<FaultyMatmul>(100, 0), small_proof(type))) << weight_type_name(type);
    EXPECT_FALSE(stand_alone(std::make_unique<FaultyMatmul>(1, 101, FaultyMatmul::In::kSeveral), small_proof(type)))
        << weight_type_name(type);
  }
}

PFN_vkCmdDispatch dispatch = nullptr;  // the driver's
bool is_faulty = false;

/// Leaves out the last rows of products of several tiles.
VKAPI_ATTR void VKAPI_CALL dispatch_less(VkCommandBuffer commands, uint32_t x, uint32_t y, uint32_t z) {
  dispatch(commands, is_faulty && x > 1 ? x - 1 : x, y, z);
}

TEST(RowProof, HoldsOnADeviceUntilItFails) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  test::VulkanDevice device(*physical, DType::kBF16);
  dispatch = std::exchange(device.backend.device().vk().CmdDispatch, &dispatch_less);
  for (const bool fails : {false, true}) {
    is_faulty = fails;
    for (const WeightType type : {kBf16, kInt8, kInt4})
      EXPECT_EQ(rows_stand_alone(device.stream, small_proof(type)), !fails) << weight_type_name(type);
  }
}

/// A device that multiplies by matrices of bf16 and int8, as far as its traits say.
PhysicalDevice device_with_matrices() {
  PhysicalDevice device;
  device.traits = {.subgroup_size = 32, .bf16 = {16, 16, 16}, .f16 = {}, .int8 = {16, 16, 32}};
  return device;
}

TEST(RowProof, OfWhatARunMayMultiplyByMatrices) {
  const DeviceTraits traits = device_with_matrices().traits;
  EXPECT_EQ(types_of_matrices(traits, DType::kBF16), (std::vector<WeightType>{kBf16, kInt8, kInt4}));
  EXPECT_EQ(types_of_matrices(traits, DType::kF32), (std::vector<WeightType>{kInt8, kInt4}));
  EXPECT_TRUE(types_of_matrices({.subgroup_size = 8, .bf16 = {}, .f16 = {8, 8, 8}, .int8 = {}}, DType::kBF16).empty());
}

using Kernels = std::set<std::pair<std::string, int64_t>>;  // shaders and rows of a tile

MatmulPlan plan_of(const DeviceTraits& traits, WeightType type, const PackedLayout& layout, int64_t num_rows,
                   int64_t num_groups) {
  return plan_product(traits, {.type = type,
                               .dtype = DType::kBF16,
                               .is_gated = layout.is_gated,
                               .has_pieces = true,
                               .k = layout.k,
                               .num_panels = layout.num_panels(),
                               .num_rows = num_rows,
                               .num_groups = num_groups});
}

Kernels proven_kernels(const DeviceTraits& traits, WeightType type) {
  Kernels kernels;
  const RowProof proof = make_row_proof(traits, type, DType::kBF16);
  for (const auto [num_rows, num_groups] : proof.batches) {
    const MatmulPlan plan = plan_of(traits, type, {proof.n, proof.k, type, false}, num_rows, num_groups);
    kernels.emplace(plan.shader, plan.tile_rows);
  }
  return kernels;
}

TEST(RowProof, ReachesEveryKernel) {
  DeviceTraits traits = device_with_matrices().traits;
  traits.shared_bytes = 48 << 10;
  EXPECT_EQ(
      proven_kernels(traits, kBf16),
      (Kernels{{"stream_matmul", 16}, {"stream_matmul", 32}, {"tile_matmul", 64}, {"tile_matmul", 96}, {"tile_matmul", 128}}));
  EXPECT_EQ(proven_kernels(traits, kInt8), (Kernels{{"stream_matmul_int8", 16},
                                                    {"stream_matmul_int8", 32},
                                                    {"tile_matmul_int8", 64},
                                                    {"tile_matmul_int8", 96},
                                                    {"tile_matmul_int8", 128}}));
  EXPECT_EQ(proven_kernels(traits, kInt4),
            (Kernels{{"dot_matrix_int4", 16}, {"tile_matmul_int4", 64}, {"tile_matmul_int4", 96}}));
}

/// Kernels that products of all kinds of sizes choose, as far as they multiply by matrices.
Kernels chosen_kernels(const DeviceTraits& traits, WeightType type) {
  Kernels kernels;
  for (const int64_t n : {64, 512, 2048, 12352, 248320}) {
    for (const int64_t k : {64, 512, 1088, 4096}) {
      for (const bool is_gated : {false, true}) {
        for (const int64_t num_groups : {1, 2, 8, 64, 256}) {
          for (int64_t each = 1; each <= 16384; each += (each + 3) / 4) {
            const MatmulPlan plan = plan_of(traits, type, {n, k, type, is_gated}, each * num_groups, num_groups);
            const std::string_view shader = plan.shader;
            const bool has_matrices = !shader.starts_with("slots") && !shader.starts_with("dot_matmul");
            if (has_matrices) kernels.emplace(shader, plan.tile_rows);
          }
        }
      }
    }
  }
  return kernels;
}

TEST(RowProof, LeavesOutNoKernelThatAProductChooses) {
  for (const uint32_t subgroup_size : {8U, 16U, 32U, 64U}) {
    for (const uint32_t shared_bytes : {32U << 10, 48U << 10, 96U << 10}) {
      for (const uint32_t fragment_n : {8U, 16U}) {
        const DeviceTraits traits{.subgroup_size = subgroup_size,
                                  .shared_bytes = shared_bytes,
                                  .bf16 = {16, fragment_n, 16},
                                  .f16 = {},
                                  .int8 = {16, fragment_n, 32}};
        for (const WeightType type : {kBf16, kInt8, kInt4}) {
          const Kernels proven = proven_kernels(traits, type), chosen = chosen_kernels(traits, type);
          EXPECT_FALSE(chosen.empty());
          for (const auto& [shader, tile_rows] : chosen)
            EXPECT_TRUE(proven.contains({shader, tile_rows})) << shader << " with tiles of " << tile_rows << " rows";
        }
      }
    }
  }
}

TEST(RowProof, MatricesThatFailAreNotUsed) {
  const auto drop = [](const std::vector<WeightType>& faulty) {
    PhysicalDevice device = device_with_matrices();
    drop_untrusted(device, types_of_matrices(device.traits, DType::kBF16),
                   [&](WeightType type) { return std::ranges::find(faulty, type) == faulty.end(); });
    return device;
  };
  const PhysicalDevice good = drop({}), bad_bf16 = drop({kBf16}), bad_int4 = drop({kInt4}), bad = drop({kBf16, kInt8, kInt4});
  EXPECT_TRUE(good.info.faults.empty());
  EXPECT_EQ(good.traits.bf16, device_with_matrices().traits.bf16);
  EXPECT_EQ(good.traits.int8, device_with_matrices().traits.int8);
  EXPECT_EQ(bad_bf16.info.faults, std::vector<std::string>{"bf16 matrices 16x16x16"});
  EXPECT_FALSE(bad_bf16.traits.bf16);
  EXPECT_TRUE(bad_bf16.traits.int8);
  EXPECT_EQ(bad_bf16.info.abilities.front(), "int8 matrices 16x16x32");
  EXPECT_EQ(bad_int4.info.faults, std::vector<std::string>{"int8 matrices 16x16x32"});
  EXPECT_TRUE(bad_int4.traits.bf16);
  EXPECT_FALSE(bad_int4.traits.int8);
  EXPECT_EQ(bad.info.faults, (std::vector<std::string>{"bf16 matrices 16x16x16", "int8 matrices 16x16x32"}));
  EXPECT_TRUE(types_of_matrices(bad.traits, DType::kBF16).empty());
}

}  // namespace
}  // namespace ferry::vulkan

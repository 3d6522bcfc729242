#include "kernels/vulkan/ops/attention_kernels.h"

#include <gtest/gtest.h>

#include <string>

namespace ferry::vulkan {
namespace {

DeviceTraits device(uint32_t subgroup_size, uint32_t shared_bytes) {
  return {.subgroup_size = subgroup_size, .shared_bytes = shared_bytes, .max_invocations = 1024, .bf16 = {16, 16, 16}};
}

/// A cache whose memory begins where it should, which nobody reads.
AttentionArgs args_of(DType dtype, int64_t head_dim, int64_t block_tokens) {
  alignas(16) static std::byte cache[16];
  AttentionArgs args{};
  args.q.dtype = args.out.dtype = dtype;
  args.cache = {cache, cache, dtype, 2, block_tokens, head_dim};
  args.num_heads = 16;
  return args;
}

std::string shader_of(const DeviceTraits& traits, const AttentionArgs& args) {
  const AttentionTiles tiles = choose_attention_tiles(traits, args);
  EXPECT_EQ(tiles.small.kernel.code, tiles.large.kernel.code);  // or bits would differ
  return std::string(tiles.small.kernel.code->name);
}

TEST(AttentionKernels, MatricesTakeHeadsAndBlocksOfWholeFragments) {
  const DeviceTraits traits = device(32, 49152);
  for (const int64_t head_dim : {16, 64, 144, 256})
    EXPECT_EQ(shader_of(traits, args_of(DType::kBF16, head_dim, 32)), "attention_matrix.bf16");
  for (const int64_t head_dim : {8, 72, 272})
    EXPECT_EQ(shader_of(traits, args_of(DType::kBF16, head_dim, 32)), "attention.bf16");
  EXPECT_EQ(shader_of(traits, args_of(DType::kBF16, 256, 8)), "attention.bf16");
  EXPECT_EQ(shader_of(traits, args_of(DType::kF32, 256, 32)), "attention.f32");
}

TEST(AttentionKernels, DevicesOfOtherKindsAttendInPlainArithmetic) {
  const AttentionArgs args = args_of(DType::kBF16, 256, 16);
  EXPECT_EQ(shader_of(device(8, 49152), args), "attention.bf16");
  EXPECT_EQ(shader_of(device(32, 16384), args), "attention.bf16");
  DeviceTraits traits = device(32, 49152);
  traits.bf16 = {8, 16, 16};
  EXPECT_EQ(shader_of(traits, args), "attention.bf16");
  traits.bf16 = {};
  EXPECT_EQ(shader_of(traits, args), "attention.bf16");
}

TEST(AttentionKernels, TilesFitIntoSharedMemory) {
  const AttentionArgs args = args_of(DType::kBF16, 256, 16);
  EXPECT_EQ(choose_attention_tiles(device(32, 49152), args).large.rows, 32);
  EXPECT_EQ(choose_attention_tiles(device(32, 32768), args).large.rows, 16);
  EXPECT_EQ(choose_attention_tiles(device(32, 32768), args).small.rows, 16);
}

}  // namespace
}  // namespace ferry::vulkan

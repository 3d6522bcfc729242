#include "runtime/state/swap_space.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "kernels/backend.h"
#include "tests/support/test_stream.h"

namespace ferry {
namespace {

constexpr KvCacheOptions kShape{
    .num_layers = 3, .num_blocks = 5, .block_tokens = 4, .num_kv_heads = 2, .head_dim = 6, .dtype = DType::kBF16};
constexpr int64_t kLayerBytes = 2 * 4 * 6 * 2;  // of a block's keys

std::span<std::byte> block_of(KvCache& cache, int layer, bool is_values, int64_t block) {
  const KvLayerView view = cache.layer(layer);
  auto* data = static_cast<std::byte*>((is_values ? view.values : view.keys).host());
  return {data + block * kLayerBytes, static_cast<std::size_t>(kLayerBytes)};
}

std::vector<std::byte> contents(KvCache& cache, int64_t block) {
  std::vector<std::byte> all;
  for (int layer = 0; layer < kShape.num_layers; ++layer) {
    for (const bool is_values : {false, true}) {
      const auto bytes = block_of(cache, layer, is_values, block);
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
  }
  return all;
}

void fill(KvCache& cache, int64_t block, uint32_t seed) {
  std::mt19937 random(seed);
  for (int layer = 0; layer < kShape.num_layers; ++layer) {
    for (const bool is_values : {false, true})
      std::ranges::generate(block_of(cache, layer, is_values, block), [&] { return static_cast<std::byte>(random()); });
  }
}

TEST(SwapSpace, BringsEveryByteBackToAnotherBlock) {
  test::TestStream stream(1);
  KvCache cache(kShape);
  SwapSpace swap(cache, stream, 3);
  for (uint32_t block = 0; block < 5; ++block) fill(cache, block, block);
  const auto first = contents(cache, 1), second = contents(cache, 4), other = contents(cache, 0);
  EXPECT_EQ(swap.num_bytes(), 0);
  swap.save(1, 2);
  swap.save(4, 0);
  EXPECT_EQ(swap.num_bytes(), 2 * KvCache::bytes_per_block(kShape));
  fill(cache, 1, 77);
  fill(cache, 4, 78);
  swap.restore(0, 1);
  swap.restore(2, 3);
  EXPECT_EQ(contents(cache, 1), second);
  EXPECT_EQ(contents(cache, 3), first);
  EXPECT_EQ(contents(cache, 0), other) << "the others stay as they are";
  swap.save(0, 2);
  EXPECT_EQ(swap.num_bytes(), 2 * KvCache::bytes_per_block(kShape)) << "used before";
  swap.restore(2, 4);
  EXPECT_EQ(contents(cache, 4), other);
}

TEST(SwapSpaceDeathTest, RestoresOnlyWhatWasSaved) {
  test::TestStream stream(1);
  KvCache cache(kShape);
  SwapSpace swap(cache, stream, 3);
  swap.save(1, 2);
  EXPECT_DEATH(swap.restore(1, 1), "block 1 was never saved");
  EXPECT_DEATH(swap.save(5, 0), "block 5 of 5");
}

}  // namespace
}  // namespace ferry

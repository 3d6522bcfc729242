#include "runtime/state/kv_cache.h"

#include <gtest/gtest.h>

#include <cstring>

namespace ferry {
namespace {

KvCacheOptions options_of(DType dtype) {
  return {.num_layers = 3, .num_blocks = 5, .block_tokens = 7, .num_kv_heads = 2, .head_dim = 11, .dtype = dtype};
}

TEST(KvCache, ViewsHaveTheShapeAndStartAsZeros) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    KvCache cache(options_of(dtype));
    for (int layer_idx = 0; layer_idx < 3; ++layer_idx) {
      const KvLayerView view = cache.layer(layer_idx);
      EXPECT_EQ(view.dtype, dtype);
      EXPECT_EQ(view.num_kv_heads, 2);
      EXPECT_EQ(view.block_tokens, 7);
      EXPECT_EQ(view.head_dim, 11);
      for (int64_t i = 0; i < 5 * 2 * 7 * 11 * dtype_bytes(dtype); ++i) {
        ASSERT_EQ(view.keys.host()[i], std::byte{0});
        ASSERT_EQ(view.values.host()[i], std::byte{0});
      }
    }
  }
}

TEST(KvCache, LayersAndKindsDoNotOverlap) {
  KvCache cache(options_of(DType::kBF16));
  const std::size_t bytes = 5 * 2 * 7 * 11 * 2;
  for (int i = 0; i < 3; ++i) {
    std::memset(cache.layer(i).keys.host(), 2 * i + 1, bytes);
    std::memset(cache.layer(i).values.host(), 2 * i + 2, bytes);
  }
  for (int i = 0; i < 3; ++i) {
    for (const std::size_t at : {std::size_t{0}, bytes / 2, bytes - 1}) {
      EXPECT_EQ(static_cast<int>(cache.layer(i).keys.host()[at]), 2 * i + 1);
      EXPECT_EQ(static_cast<int>(cache.layer(i).values.host()[at]), 2 * i + 2);
    }
  }
}

TEST(KvCache, CountsBytesOfABlock) {
  EXPECT_EQ(KvCache::bytes_per_block(options_of(DType::kF32)), 2 * 3 * 2 * 7 * 11 * 4);
  EXPECT_EQ(KvCache::bytes_per_block(options_of(DType::kBF16)), 2 * 3 * 2 * 7 * 11 * 2);
  EXPECT_EQ(KvCache::bytes_per_block(options_of(DType::kI8)), 2 * 3 * 2 * 7 * (11 + 1)) << "codes, and a row's exponent";
  KvCacheOptions wide = options_of(DType::kI8);
  wide.head_dim = 256;
  EXPECT_EQ(KvCache::bytes_per_block(wide), 2 * 3 * 2 * 7 * (256 + 8));
  KvCacheOptions none = options_of(DType::kF32);
  none.num_layers = 0;
  EXPECT_EQ(KvCache::bytes_per_block(none), 0);
  EXPECT_NO_FATAL_FAILURE(KvCache cache(none));
}

TEST(KvCacheDeathTest, ChecksTheLayer) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  KvCache cache(options_of(DType::kF32));
  EXPECT_DEATH(cache.layer(3), "layer 3 of 3");
  EXPECT_DEATH(cache.layer(-1), "layer -1 of 3");
}

}  // namespace
}  // namespace ferry

#include "runtime/schedule/counter_random.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

// Known answers that the authors of Philox publish with Random123 (philox4x32, 10 rounds).
TEST(CounterRandom, MatchesThePublishedAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(CounterRandom, UsesAllBitsOfSeedAndIndex) {
  const double base = counter_uniform(5, 9);
  EXPECT_EQ(base, counter_uniform(5, 9));
  EXPECT_NE(base, counter_uniform(5 + (uint64_t{1} << 40), 9));
  EXPECT_NE(base, counter_uniform(5, 9 + (uint64_t{1} << 40)));
  EXPECT_NE(base, counter_uniform(9, 5));
}

TEST(CounterRandom, IsUniformOnTheUnitInterval) {
  constexpr int kNumBins = 13;
  constexpr int kNumDraws = 130'000;
  std::array<int, kNumBins> counts{};
  for (int i = 0; i < kNumDraws; ++i) {
    const double u = counter_uniform(static_cast<uint64_t>(i % 7), static_cast<uint64_t>(i / 7));
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    ++counts[static_cast<std::size_t>(u * kNumBins)];
  }
  double chi2 = 0.0;
  for (const int count : counts) chi2 += (count - 10'000.0) * (count - 10'000.0) / 10'000.0;
  EXPECT_LT(chi2, 40.0);  // 12 degrees of freedom: p < 1e-4 beyond
}

}  // namespace
}  // namespace ferry

#include "kernels/free_extents.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

namespace ferry {
namespace {

TEST(FreeExtents, GoWhereTheyFitFirst) {
  FreeExtents extents(100);
  std::vector<FreeExtents::Taken> taken;
  for (int i = 0; i < 5; ++i) taken.push_back(*extents.take(20));
  EXPECT_EQ(taken[4].extent().begin, 80U);
  EXPECT_FALSE(extents.take(1)) << "all are in use";
  EXPECT_EQ(extents.give_back(std::move(taken[3])).size(), 20U);
  EXPECT_EQ(extents.give_back(std::move(taken[1])).begin, 20U);
  EXPECT_FALSE(extents.take(21)) << "40 are free, in two places";
  const Extent hole = extents.give_back(std::move(taken[2]));
  EXPECT_EQ(std::pair(hole.begin, hole.end), std::pair(std::size_t{20}, std::size_t{80}));
  EXPECT_EQ(extents.holes().size(), 1U);
  EXPECT_EQ(extents.used_bytes(), 40U);
  EXPECT_EQ(extents.take(60)->extent().begin, 20U);
  EXPECT_TRUE(extents.holes().empty());
}

/// Any order of taking and giving back: no two have a byte in common, and holes are all that is between them.
TEST(FreeExtents, AreApartAndLeaveNothingOut) {
  constexpr std::size_t kNumBytes = 1000;
  std::mt19937 random(1);
  FreeExtents extents(kNumBytes);
  std::vector<FreeExtents::Taken> taken;
  int num_refused = 0;
  for (int i = 0; i < 20000; ++i) {
    if (random() % 2 == 0 && !taken.empty()) {
      std::swap(taken[random() % taken.size()], taken.back());
      extents.give_back(std::move(taken.back()));
      taken.pop_back();
    } else if (auto place = extents.take(1 + random() % 60)) {
      taken.push_back(std::move(*place));
    } else {
      ++num_refused;
    }
    std::vector<int> owners(kNumBytes, 0);
    std::size_t used = 0;
    for (const FreeExtents::Taken& place : taken) {
      for (std::size_t at = place.extent().begin; at < place.extent().end; ++at) ++owners[at];
      used += place.extent().size();
    }
    std::size_t last_end = kNumBytes + 1;
    for (const auto& [begin, end] : extents.holes()) {
      ASSERT_LT(begin, end);
      ASSERT_NE(begin, last_end) << "two holes next to each other";
      last_end = end;
      for (std::size_t at = begin; at < end; ++at) ++owners[at];
    }
    ASSERT_EQ(owners, std::vector<int>(kNumBytes, 1));
    ASSERT_EQ(extents.used_bytes(), used);
  }
  EXPECT_GT(num_refused, 0);
}

TEST(FreeExtents, OfOneSizeReachNoFurtherThanTheMostThatWereInUse) {
  constexpr std::size_t kMost = 20, kPiece = 7;
  std::mt19937 random(2);
  FreeExtents extents(1000 * kPiece);
  std::vector<FreeExtents::Taken> taken;
  for (int i = 0; i < 20000; ++i) {
    if (taken.size() == kMost || (random() % 2 == 0 && !taken.empty())) {
      std::swap(taken[random() % taken.size()], taken.back());
      extents.give_back(std::move(taken.back()));
      taken.pop_back();
    } else {
      taken.push_back(*extents.take(kPiece));
      ASSERT_LE(taken.back().extent().end, kMost * kPiece);
    }
  }
}

}  // namespace
}  // namespace ferry

#include "runtime/base/random_id.h"

#include <gtest/gtest.h>

#include <set>

namespace ferry {
namespace {

TEST(RandomId, Has128BitsAndDoesNotRepeat) {
  std::set<std::string> seen;
  for (int i = 0; i < 1009; ++i) {
    const std::string id = random_id();
    EXPECT_EQ(id.size(), 32U);
    EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos) << id;
    EXPECT_TRUE(seen.insert(id).second) << id;
  }
}

TEST(RandomSeed, DoesNotRepeat) {
  std::set<uint64_t> seen;
  for (int i = 0; i < 1009; ++i) EXPECT_TRUE(seen.insert(random_seed()).second);
}

}  // namespace
}  // namespace ferry

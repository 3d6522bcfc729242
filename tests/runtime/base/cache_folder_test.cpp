#include "runtime/base/cache_folder.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

TEST(CacheFolder, IsTheUsersOwnUnlessItIsNamed) {
  EXPECT_EQ(cache_folder("/x/cache", "/home/a"), "/x/cache/ferry");
  for (const char* unusable : {static_cast<const char*>(nullptr), "", "relative"}) {
    EXPECT_EQ(cache_folder(unusable, "/home/a"), "/home/a/.cache/ferry");
    EXPECT_EQ(cache_folder(unusable, unusable), "");
  }
}

}  // namespace
}  // namespace ferry

#include "runtime/base/runtime_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/temp_folder.h"

namespace ferry {
namespace {

using std::filesystem::perms;

TEST(RuntimeFolder, IsInTheUsersFolderWhereNobodyElseCanLook) {
  const test::TempFolder folder;
  std::filesystem::permissions(folder.path(), perms::owner_all);
  EXPECT_EQ(runtime_folder(folder.path().c_str()), folder.path() / "ferry");
}

TEST(RuntimeFolder, IsInTheTemporaryFolderWhereTheVariableIsOfNoUse) {
  const test::TempFolder folder;
  std::filesystem::permissions(folder.path(), perms::owner_all | perms::group_read);
  const auto expected = std::filesystem::temp_directory_path() / ("ferry-" + std::to_string(geteuid()));
  const std::string missing = folder.path() / "missing";
  for (const char* unusable : {static_cast<const char*>(nullptr), "", "run", missing.c_str(), folder.path().c_str()})
    EXPECT_EQ(runtime_folder(unusable), expected) << (unusable == nullptr ? "null" : unusable);
}

}  // namespace
}  // namespace ferry

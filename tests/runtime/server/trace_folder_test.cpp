#include "runtime/server/trace_folder.h"

#include <fstream>

#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace ferry {
namespace {

namespace fs = std::filesystem;

class TraceFolderTest : public ::testing::Test {
 protected:
  void refuse(const fs::path& asked, ErrorCode code, const std::string& part) {
    test::expect_error([&] { folder_.claim(asked); }, code, {"output_dir", part});
  }

  const test::TempFolder temp_;
  const fs::path root_ = temp_.path() / "traces", outside_ = temp_.path() / "outside";
  const TraceFolder folder_{root_};
};

TEST_F(TraceFolderTest, FoldersBelowTheRootAreMade) {
  EXPECT_EQ(folder_.claim("one"), root_ / "one");
  EXPECT_EQ(folder_.claim("a/./b//c/"), root_ / "a/b/c");
  EXPECT_EQ(folder_.claim(root_ / "absolute" / "two"), root_ / "absolute/two");
  for (const char* name : {"one", "a/b/c", "absolute/two"}) EXPECT_TRUE(fs::is_directory(root_ / name)) << name;
  EXPECT_EQ(folder_.claim("one"), root_ / "one");  // empty, so it may be used
  std::ofstream(root_ / "one" / "capture.json") << "{}";
  test::expect_error([&] { folder_.claim("one"); }, ErrorCode::kFailedPrecondition, {"holds a capture already"});
}

TEST_F(TraceFolderTest, NothingElseIsMade) {
  for (const fs::path& asked :
       {outside_, fs::path("/tmp"), fs::path("/"), fs::path("/proc/none"), root_.parent_path(), fs::path(root_.string() + "2")})
    refuse(asked, ErrorCode::kInvalidArgument, "elsewhere");
  for (const fs::path& asked :
       {fs::path(".."), fs::path("../outside"), fs::path("a/../../outside"), root_ / "../outside", fs::path("a/..")})
    refuse(asked, ErrorCode::kInvalidArgument, "with ..");
  for (const fs::path& asked : {fs::path("."), fs::path("./."), root_, root_ / "."})
    refuse(asked, ErrorCode::kInvalidArgument, "itself");
  refuse(std::string("a\0b", 3), ErrorCode::kInvalidArgument, "printable");
  refuse("a\nb", ErrorCode::kInvalidArgument, "printable");
  refuse(std::string(2000, 'a'), ErrorCode::kInvalidArgument, "too long");
  std::string deep;
  for (int i = 0; i < 50; ++i) deep += "d/";
  refuse(deep, ErrorCode::kInvalidArgument, "too deep");
  EXPECT_FALSE(fs::exists(outside_));
}

TEST_F(TraceFolderTest, LinksLeadNowhere) {
  fs::create_directories(outside_);
  folder_.claim("inside");
  fs::create_directory_symlink(outside_, root_ / "link");
  fs::create_directory_symlink(root_ / "inside", root_ / "tame");
  fs::create_symlink("/nowhere/at/all", root_ / "dangling");
  for (const char* name : {"link", "link/deeper", "tame", "dangling"})
    refuse(name, ErrorCode::kInvalidArgument, "symbolic link");
  fs::create_symlink(outside_ / "victim", root_ / "inside" / "report.txt");
  refuse("inside", ErrorCode::kInvalidArgument, "symbolic link");
  fs::create_directories(root_ / "nested" / "csv");
  fs::create_directory_symlink(outside_, root_ / "nested" / "csv" / "out");
  refuse("nested", ErrorCode::kInvalidArgument, "symbolic link");
  EXPECT_TRUE(fs::is_empty(outside_));
}

TEST_F(TraceFolderTest, AFileInTheWayIsSaidSo) {
  folder_.claim("x");
  std::ofstream(root_ / "file") << "text";
  refuse("file", ErrorCode::kFailedPrecondition, "Not a directory");
  refuse("file/below", ErrorCode::kFailedPrecondition, "Not a directory");
}

TEST_F(TraceFolderTest, TheRootItselfMayBeALink) {
  fs::create_directories(outside_);
  fs::create_directory_symlink(outside_, root_);
  EXPECT_EQ(folder_.claim("one"), root_ / "one");
  EXPECT_EQ(folder_.claim(outside_ / "two"), root_ / "two");  // by its real name
  EXPECT_TRUE(fs::is_directory(outside_ / "two"));
}

}  // namespace
}  // namespace ferry

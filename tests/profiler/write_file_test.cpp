#include "profiler/write_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "runtime/base/error.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace ferry {
namespace {

namespace fs = std::filesystem;

class WriteFileTest : public testing::Test {
 protected:
  fs::path at(const std::string& name) const { return folder_.path() / name; }
  std::string read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(at(name)).rdbuf();
    return text.str();
  }
  void put(const std::string& name, const std::string& text) const { std::ofstream(at(name)) << text; }
  void write_anew(const std::string& name) const {
    write_file_anew(at(name), [](std::ostream& out) { out << "new"; });
  }

  test::TempFolder folder_;
};

TEST_F(WriteFileTest, MakesAndReplacesFiles) {
  write_anew("file");
  EXPECT_EQ(read("file"), "new");
  put("file", "something longer");
  write_anew("file");
  EXPECT_EQ(read("file"), "new");
  test::expect_error([&] { write_anew("missing/file"); }, ErrorCode::kUnavailable,
                     {"cannot write ", "missing/file: No such file"});
}

TEST_F(WriteFileTest, ChangesNothingThatIsLinkedToIt) {
  put("precious", "mine");
  fs::create_hard_link(at("precious"), at("hard"));
  write_anew("hard");
  EXPECT_EQ(read("hard"), "new");
  EXPECT_EQ(read("precious"), "mine");
  fs::create_symlink("precious", at("link"));
  fs::create_symlink("nothing", at("dangling"));
  ASSERT_EQ(::mkfifo(at("fifo").c_str(), 0600), 0);
  fs::create_directory(at("folder"));
  for (const char* name : {"link", "dangling", "fifo", "folder"})
    test::expect_error([&] { write_anew(name); }, ErrorCode::kFailedPrecondition,
                       {name, "is no regular file; allowed: one, or none"});
  EXPECT_EQ(read("precious"), "mine");
  EXPECT_FALSE(fs::exists(at("nothing")));
  write_file(at("link"), [](std::ostream& out) { out << "as the user asked"; });
  EXPECT_EQ(read("precious"), "as the user asked");
}

TEST_F(WriteFileTest, LinksAreFoundAnywhereInAFolder) {
  fs::create_directories(at("a/b/c"));
  put("a/b/file", "x");
  EXPECT_EQ(find_link_in(at("a")), std::nullopt);
  EXPECT_EQ(find_link_in(at("missing")), std::nullopt);
  fs::create_symlink(at("a"), at("to_a"));
  EXPECT_EQ(find_link_in(at("to_a")), std::nullopt) << "the folder's own name may be a link";
  fs::create_symlink("/nowhere", at("a/b/c/link"));
  EXPECT_EQ(find_link_in(at("a")), at("a/b/c/link"));
  test::expect_error([&] { refuse_links_in(at("a")); }, ErrorCode::kFailedPrecondition,
                     {"a/b/c/link is a symbolic link; allowed: none in a capture"});
}

}  // namespace
}  // namespace ferry

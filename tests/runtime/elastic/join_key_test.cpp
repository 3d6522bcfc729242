#include "runtime/elastic/join_key.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace ferry {
namespace {

class JoinKeyTest : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& text) {
    std::ofstream(folder_.path() / "key", std::ios::binary) << text;
    return folder_.path() / "key";
  }

  test::TempFolder folder_;
};

TEST_F(JoinKeyTest, IsTheTextWithoutTheSpaceAroundIt) {
  EXPECT_EQ(read_join_key(write("a key of 16 byte")), "a key of 16 byte");
  EXPECT_EQ(read_join_key(write(" \r\n\ta key of 16 byte\r\n \t\n")), "a key of 16 byte");
  EXPECT_EQ(read_join_key(write(std::string(4096, 'k') + "\n")), std::string(4096, 'k'));
  EXPECT_EQ(read_join_key({}), "") << "no file, no key";
}

TEST_F(JoinKeyTest, RefusesOneThatIsTooShortOrTooLong) {
  using test::expect_error;
  const std::string name = (folder_.path() / "key").string();
  expect_error([&] { read_join_key(write("a key of 15 byt\n\n\n")); }, ErrorCode::kInvalidArgument,
               {name, "15 bytes; allowed: 16 to 4096"});
  expect_error([&] { read_join_key(write("")); }, ErrorCode::kInvalidArgument, {name, "0 bytes"});
  expect_error([&] { read_join_key(write(std::string(20, '\n'))); }, ErrorCode::kInvalidArgument, {name, "0 bytes"});
  expect_error([&] { read_join_key(write(std::string(4097, 'k'))); }, ErrorCode::kInvalidArgument, {name, "4097 bytes"});
  expect_error([&] { read_join_key(write(std::string(100000, 'k'))); }, ErrorCode::kInvalidArgument, {name});
}

TEST_F(JoinKeyTest, AMissingFileIsNotNoKey) {
  test::expect_error([&] { read_join_key(folder_.path() / "other"); }, ErrorCode::kNotFound,
                     {(folder_.path() / "other").string()});
}

}  // namespace
}  // namespace ferry

#include "runtime/elastic/join_key.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <thread>
#include <vector>

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

mode_t mode_of(const std::filesystem::path& path) {
  struct stat found {};
  EXPECT_EQ(lstat(path.c_str(), &found), 0) << path;
  return found.st_mode & 07777U;
}

class OwnJoinKeyTest : public testing::Test {
 protected:
  /// Expects that the key is refused for what is at `path`.
  void expect_refusal(const std::filesystem::path& path, const std::string& why) const {
    test::expect_error([&] { own_join_key(own_); }, ErrorCode::kFailedPrecondition,
                       {path.string(), why, "allowed: --join-key FILE"});
  }

  const test::TempFolder folder_;
  const std::filesystem::path own_ = folder_.path() / "own", file_ = own_ / "join.key";
};

TEST_F(OwnJoinKeyTest, IsMadeOnceForNobodyElse) {
  const std::string key = own_join_key(own_);
  EXPECT_GE(key.size(), 32U);
  EXPECT_EQ(own_join_key(own_), key);
  EXPECT_EQ(read_join_key(file_), key);
  EXPECT_EQ(mode_of(own_), 0700U);
  EXPECT_EQ(mode_of(file_), 0600U);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(own_), {}), 1) << "nothing else is left there";
  EXPECT_NE(own_join_key(folder_.path() / "another"), key);
}

TEST_F(OwnJoinKeyTest, IsTheSameForAllThatMakeItAtOnce) {
  std::vector<std::string> keys(8);
  std::vector<std::jthread> makers;
  for (std::string& key : keys) makers.emplace_back([&] { key = own_join_key(own_); });
  makers.clear();
  EXPECT_EQ(std::set<std::string>(keys.begin(), keys.end()).size(), 1U);
  EXPECT_EQ(read_join_key(file_), keys.front());
}

TEST_F(OwnJoinKeyTest, IsNeverReadOrMadeThroughALink) {
  const std::filesystem::path other = folder_.path() / "other";
  std::filesystem::create_directory(other);
  std::filesystem::create_directory_symlink(other, own_);
  expect_refusal(own_, "is a link");
  EXPECT_TRUE(std::filesystem::is_empty(other));
  std::filesystem::remove(own_);
  own_join_key(own_);
  std::filesystem::rename(file_, other / "key");
  std::filesystem::create_symlink(other / "key", file_);
  expect_refusal(file_, "is a link");
  std::filesystem::remove(file_);
  std::filesystem::create_symlink(other / "missing", file_);
  expect_refusal(file_, "is a link");
  EXPECT_FALSE(std::filesystem::exists(other / "missing"));
}

TEST_F(OwnJoinKeyTest, WhatOthersCanReachIsRefused) {
  own_join_key(own_);
  ASSERT_EQ(chmod(file_.c_str(), 0640), 0);
  expect_refusal(file_, "open to other users");
  ASSERT_EQ(chmod(file_.c_str(), 0600), 0);
  ASSERT_EQ(chmod(own_.c_str(), 0755), 0);
  expect_refusal(own_, "open to other users");
}

TEST_F(OwnJoinKeyTest, WhatBelongsToSomebodyElseIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  own_join_key(own_);
  ASSERT_EQ(chown(file_.c_str(), 12345, 12345), 0);
  expect_refusal(file_, "belongs to user 12345");
  ASSERT_EQ(chown(own_.c_str(), 12345, 12345), 0);
  expect_refusal(own_, "belongs to user 12345");
}

TEST_F(OwnJoinKeyTest, WhatIsNoFileIsRefusedAndHoldsNobodyUp) {
  std::filesystem::create_directory(own_);
  std::filesystem::permissions(own_, std::filesystem::perms::owner_all);
  ASSERT_EQ(mkfifo(file_.c_str(), 0600), 0);
  expect_refusal(file_, "is no regular file");
  std::filesystem::remove(file_);
  std::filesystem::create_directory(file_);
  EXPECT_THROW(own_join_key(own_), Error);
  std::filesystem::remove_all(own_);
  std::ofstream(own_) << "a file";
  expect_refusal(own_, "cannot be used");
}

TEST_F(OwnJoinKeyTest, CountsOnThisHostWhereNoFileIsGiven) {
  const std::string key = own_join_key(own_);
  for (const char* address : {"127.0.0.1:29750", "localhost:1", "[::1]:29750", "unix:name"})
    EXPECT_EQ(join_key_for(address, {.key_file = {}, .own_folder = own_}), key) << address;
  for (const char* address : {"0.0.0.0:29750", "node0:29750", "10.0.0.1:29750"})
    EXPECT_EQ(join_key_for(address, {.key_file = {}, .own_folder = own_}), "") << address;
  EXPECT_EQ(join_key_for("127.0.0.1:1", {.key_file = {}, .own_folder = {}}), "");
  std::ofstream(folder_.path() / "key") << "a key of some length\n";
  EXPECT_EQ(join_key_for("127.0.0.1:1", {.key_file = folder_.path() / "key", .own_folder = own_}), "a key of some length");
  test::expect_error([&] { join_key_for("nowhere", {.key_file = {}, .own_folder = own_}); }, ErrorCode::kInvalidArgument,
                     {"nowhere"});
}

}  // namespace
}  // namespace ferry

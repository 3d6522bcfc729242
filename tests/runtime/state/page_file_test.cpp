#include "runtime/state/page_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "runtime/base/error.h"
#include "tests/support/eventually.h"
#include "tests/support/temp_folder.h"

namespace ferry {
namespace {

constexpr int64_t kPage = 4096;

Storage random_bytes(int64_t size, uint32_t seed) {
  Storage bytes = host_memory().allocate(static_cast<std::size_t>(size));
  std::mt19937 random(seed);
  std::generate_n(bytes.address().host(), size, [&] { return static_cast<std::byte>(random()); });
  return bytes;
}

PageFile::Job job_of(bool is_write, std::vector<int32_t> pages, Storage bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  return {.is_write = is_write, .pages = std::move(pages), .bytes = std::move(bytes), .num_bytes = size};
}

/// What became of the jobs that were handed in, once there are so many.
std::vector<PageFile::Job> done_of(PageFile& file, std::size_t count) {
  std::vector<PageFile::Job> done;
  const auto are_done = [&] {
    for (PageFile::Job& job : file.take_done()) done.push_back(std::move(job));
    return done.size() >= count;
  };
  eventually(are_done, std::to_string(count) + " jobs", [&] { return std::to_string(done.size()) + " are done"; });
  return done;
}

bool is_same(const Storage& a, const Storage& b) {
  return a.size() == b.size() && std::memcmp(a.address().host(), b.address().host(), a.size()) == 0;
}

TEST(PageFile, GivesBackWhatWasWrittenLast) {
  const test::TempFolder dir;
  PageFile file(open_private_file(dir.path(), 8 * kPage), 8, kPage);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path())) << "it has no name";
  file.add(job_of(true, {5, 0, 3}, random_bytes(2 * kPage + 100, 1)));
  file.add(job_of(true, {1, 2}, random_bytes(2 * kPage, 2)));
  file.add(job_of(false, {5, 0, 3}, random_bytes(2 * kPage + 100, 3)));
  file.add(job_of(true, {5}, random_bytes(kPage, 4)));
  file.add(job_of(false, {5}, random_bytes(kPage, 5)));
  file.add(job_of(false, {5, 0, 3}, random_bytes(2 * kPage + 100, 6)));
  const std::vector<PageFile::Job> done = done_of(file, 6);
  for (const PageFile::Job& job : done) EXPECT_EQ(job.outcome, PageFile::Outcome::kDone);
  EXPECT_TRUE(is_same(done[2].bytes, random_bytes(2 * kPage + 100, 1)));
  EXPECT_TRUE(is_same(done[4].bytes, random_bytes(kPage, 4)));
  EXPECT_FALSE(is_same(done[5].bytes, done[2].bytes));
  EXPECT_EQ(file.num_pending_bytes(true) + file.num_pending_bytes(false), 0);
}

TEST(PageFile, TellsBytesThatAreNotWhatWasWritten) {
  const test::TempFolder dir;
  FileDescriptor descriptor = open_private_file(dir.path(), 4 * kPage);
  const FileDescriptor other(::dup(descriptor.get()));
  PageFile file(std::move(descriptor), 4, kPage);
  file.add(job_of(true, {2, 1}, random_bytes(2 * kPage, 1)));
  ASSERT_EQ(done_of(file, 1)[0].outcome, PageFile::Outcome::kDone);
  std::byte byte{};
  ASSERT_EQ(::pread(other.get(), &byte, 1, kPage + 7), 1);
  byte ^= std::byte{1};
  ASSERT_EQ(::pwrite(other.get(), &byte, 1, kPage + 7), 1);
  file.add(job_of(false, {2, 1}, random_bytes(2 * kPage, 2)));
  file.add(job_of(false, {2}, random_bytes(kPage, 2)));
  file.add(job_of(false, {3}, random_bytes(kPage, 2)));
  const std::vector<PageFile::Job> done = done_of(file, 3);
  EXPECT_EQ(done[0].outcome, PageFile::Outcome::kUnlike);
  EXPECT_EQ(done[1].outcome, PageFile::Outcome::kDone);
  EXPECT_EQ(done[2].outcome, PageFile::Outcome::kUnlike) << "never written";
}

TEST(PageFile, WritesNothingMoreBehindAFailure) {
  PageFile file(FileDescriptor(::open("/dev/full", O_RDWR | O_CLOEXEC)), 4, kPage);
  file.add(job_of(true, {0}, random_bytes(kPage, 1)));
  file.add(job_of(true, {1}, random_bytes(kPage, 2)));
  file.add(job_of(false, {0}, random_bytes(kPage, 3)));
  const std::vector<PageFile::Job> done = done_of(file, 3);
  EXPECT_EQ(done[0].outcome, PageFile::Outcome::kFailed);
  EXPECT_EQ(done[0].error, ENOSPC);
  EXPECT_EQ(done[1].outcome, PageFile::Outcome::kAbandoned);
  EXPECT_EQ(done[2].outcome, PageFile::Outcome::kUnlike);
}

TEST(PageFile, SaysWhyThereIsNone) {
  const test::TempFolder dir;
  const auto complaint_of = [](const std::filesystem::path& folder, int64_t num_bytes) {
    try {
      open_private_file(folder, num_bytes);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(complaint_of(dir.path() / "none", kPage).find("none'"), std::string::npos);
  EXPECT_NE(complaint_of(dir.path(), int64_t{1} << 50).find("a file of 1024 TiB"), std::string::npos);
  EXPECT_EQ(complaint_of(dir.path(), kPage), "");
}

}  // namespace
}  // namespace ferry

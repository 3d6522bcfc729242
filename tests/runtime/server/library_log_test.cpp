#include "runtime/server/library_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string>

#include "runtime/base/file_descriptor.h"
#include "tests/support/manual_clock.h"

namespace ferry {
namespace {

using std::chrono::minutes;

class LibraryLogTest : public testing::Test {
 protected:
  LibraryLogTest() {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    reader_ = FileDescriptor(ends[0]);
    writer_ = FileDescriptor(ends[1]);
    EXPECT_EQ(fcntl(reader_.get(), F_SETFL, O_NONBLOCK), 0);
  }
  /// All that has been written and not been read.
  std::string read_all() {
    std::string text;
    std::array<char, 4096> piece{};
    for (ssize_t count = 0; (count = read(reader_.get(), piece.data(), piece.size())) > 0;)
      text.append(piece.data(), static_cast<std::size_t>(count));
    return text;
  }
  static int64_t lines_of(const std::string& text) { return std::ranges::count(text, '\n'); }

  FileDescriptor reader_{-1}, writer_{-1};
  ManualClock clock_;
};

TEST_F(LibraryLogTest, SaysWhoReportsInOneLine) {
  LibraryLog log(writer_.get(), clock_);
  log.add("protobuf", "a field\nhas\x1b[31m odd bytes");
  EXPECT_EQ(read_all(), "ferry: protobuf: a field has [31m odd bytes\n");
}

TEST_F(LibraryLogTest, WritesFewLinesAMinuteAndCountsTheOthers) {
  LibraryLog log(writer_.get(), clock_);
  for (int i = 0; i < 1000; ++i) log.add("grpc", "hostile");
  EXPECT_EQ(lines_of(read_all()), LibraryLog::kLinesPerMinute);
  clock_.advance(minutes(1));
  log.add("grpc", "later");
  EXPECT_EQ(read_all(), "ferry: grpc: later (990 lines before this one were left out)\n");
  log.add("grpc", "next");
  EXPECT_EQ(read_all(), "ferry: grpc: next\n");
}

TEST_F(LibraryLogTest, NeverWaitsForTheReaderOfAPipe) {
  LibraryLog log(writer_.get(), clock_);
  const int room = fcntl(writer_.get(), F_GETPIPE_SZ);
  for (int written = 0; written < 2 * room;
       written += 100) {  // more than the pipe holds, so this returns only if it never waits
    log.add("grpc", std::string(1000, 'g'));
    clock_.advance(minutes(1));
  }
  const std::size_t num_unread = read_all().size();
  EXPECT_LT(num_unread, LibraryLog::kMaxUnreadBytes + 1000) << "others can write as well";
  log.add("grpc", "after");
  EXPECT_NE(read_all().find("left out"), std::string::npos);
}

TEST_F(LibraryLogTest, GoesOnWithoutAReader) {
  LibraryLog log(-1, clock_);
  log.add("grpc", "lost");
}

}  // namespace
}  // namespace ferry

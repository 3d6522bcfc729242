#include "runtime/server/log/request_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "runtime/base/file_descriptor.h"
#include "tests/support/eventually.h"

namespace ferry {
namespace {

using nlohmann::json;

EndedRequest request_of(int number) {
  return {.time = std::chrono::system_clock::now(),
          .port = "http",
          .method = "POST",
          .route = "/v1/completions",
          .status = 200,
          .key = "",
          .figures = {.id = std::to_string(number), .num_choices = 1},
          .total_s = 1};
}

class RequestLogTest : public ::testing::Test {
 protected:
  RequestLogTest() {
    std::signal(SIGPIPE, SIG_IGN);
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    reader_ = FileDescriptor(ends[0]);
    writer_ = FileDescriptor(ends[1]);
  }

  /// One line, without its end; empty once there is no writer.
  std::string read_line() const {
    std::string line;
    for (char next = 0; ::read(reader_.get(), &next, 1) == 1 && next != '\n';) line += next;
    return line;
  }
  /// Until the pipe takes nothing more. Returns how many lines were added.
  int fill(RequestLog& log) const {
    int num_added = 0;
    while (log.count().dropped == 0) log.add(request_of(num_added++));
    return num_added;
  }

  FileDescriptor reader_{-1}, writer_{-1};
};

TEST_F(RequestLogTest, WritesALineForEachRequestInOrder) {
  RequestLog log(RequestLog::Form::kJson, writer_.get());
  for (int i = 0; i < 3; ++i) log.add(request_of(i));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(json::parse(read_line()).at("id"), std::to_string(i));
  eventually([&] { return log.count().written == 3; }, "three lines");
}

TEST_F(RequestLogTest, TextIsTheOtherForm) {
  RequestLog log(RequestLog::Form::kText, writer_.get());
  log.add(request_of(7));
  EXPECT_NE(read_line().find(" id=7 "), std::string::npos);
}

/// Nobody reads. add() returns all the same, and the lines that are dropped are counted and reported.
TEST_F(RequestLogTest, SlowReaderHoldsNobodyUp) {
  RequestLog log(RequestLog::Form::kJson, writer_.get());
  const int num_added = fill(log);
  EXPECT_GT(num_added, static_cast<int>(RequestLog::kMaxQueued));
  EXPECT_EQ(log.count().dropped, 1);
  int num_read = 0, num_told = 0;
  for (; num_told == 0; ++num_read) num_told = json::parse(read_line()).value("dropped_lines", 0);
  EXPECT_EQ(num_told, 1);
  EXPECT_EQ(num_read, num_added) << "the report stands where the line is missing";
}

TEST_F(RequestLogTest, LineThatFindsNoMemoryIsReportedAsDropped) {
  RequestLog log(RequestLog::Form::kJson, writer_.get());
  log.add_made([]() -> EndedRequest { throw std::bad_alloc(); });
  EXPECT_EQ(log.count().dropped, 1);
  log.add_made([] { return request_of(7); });
  EXPECT_EQ(json::parse(read_line()).at("dropped_lines"), 1);
  EXPECT_EQ(json::parse(read_line()).at("id"), "7");
}

/// Its last lines have kLeaveTime together, not each.
TEST_F(RequestLogTest, EndsWhileNobodyReads) {
  auto begin = std::chrono::steady_clock::now();
  {
    RequestLog log(RequestLog::Form::kJson, writer_.get());
    fill(log);
    begin = std::chrono::steady_clock::now();
  }
  const auto time = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(time, RequestLog::kLeaveTime);
  EXPECT_LT(time, 100 * RequestLog::kLeaveTime) << "4096 lines were waited for one by one";
}

/// A terminal reports that it is writable, and then a write of a whole line blocks.
TEST_F(RequestLogTest, EndsWhileATerminalIsNotRead) {
  const FileDescriptor terminal(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (terminal.get() < 0) GTEST_SKIP() << "no terminals here";
  ASSERT_EQ(grantpt(terminal.get()), 0);
  ASSERT_EQ(unlockpt(terminal.get()), 0);
  const int side = open(ptsname(terminal.get()), O_RDWR | O_NOCTTY | O_CLOEXEC);  // stays open, since a thread may still write
  ASSERT_GE(side, 0);
  testing::internal::CaptureStderr();
  {
    RequestLog log(RequestLog::Form::kJson, side);
    fill(log);
  }
  EXPECT_NE(testing::internal::GetCapturedStderr().find("lines of the request log that were dropped: "), std::string::npos);
  std::array<char, 4096> taken{};
  eventually([&] { return read(terminal.get(), taken.data(), taken.size()) > 0; }, "something was written");
}

TEST_F(RequestLogTest, CutLineEndsBeforeTheNextOne) {
  std::FILE* const file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit little{.rlim_cur = 30, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &little), 0);
  {
    RequestLog log(RequestLog::Form::kJson, fileno(file));
    log.add(request_of(1));
    eventually([&] { return log.count().dropped == 1; }, "a line that found no room");
    setrlimit(RLIMIT_FSIZE, &before);
    log.add(request_of(2));
    eventually([&] { return log.count().written == 1; }, "a whole line");
  }
  std::string text(4096, '\0');
  const ssize_t num_bytes = pread(fileno(file), text.data(), text.size(), 0);
  std::fclose(file);
  ASSERT_GT(num_bytes, 0);
  std::istringstream lines(text.substr(0, static_cast<std::size_t>(num_bytes)));
  std::string cut, gap, whole;
  std::getline(lines, cut);
  std::getline(lines, gap);
  std::getline(lines, whole);
  EXPECT_EQ(cut.size(), 30U);
  EXPECT_EQ(json::parse(gap).at("dropped_lines"), 1);
  EXPECT_EQ(json::parse(whole).at("id"), "2");
}

TEST_F(RequestLogTest, WritesWhatIsQueuedBeforeItEnds) {
  {
    RequestLog log(RequestLog::Form::kJson, writer_.get());
    for (int i = 0; i < 100; ++i) log.add(request_of(i));
  }
  writer_ = FileDescriptor(-1);
  int num_lines = 0;
  while (!read_line().empty()) ++num_lines;
  EXPECT_EQ(num_lines, 100);
}

TEST_F(RequestLogTest, ClosedPipeDropsLinesAndSaysSoOnce) {
  reader_ = FileDescriptor(-1);
  testing::internal::CaptureStderr();
  RequestLog log(RequestLog::Form::kJson, writer_.get());
  for (int i = 0; i < 3; ++i) log.add(request_of(i));
  eventually([&] { return log.count().dropped == 3; }, "three dropped lines");
  EXPECT_EQ(log.count().written, 0);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "ferry: the request log cannot be written and lines are dropped: Broken pipe\n");
}

}  // namespace
}  // namespace ferry

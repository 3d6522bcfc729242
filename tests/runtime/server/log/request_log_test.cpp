#include "runtime/server/log/request_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <new>
#include <nlohmann/json.hpp>
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
  EXPECT_EQ(num_told, 1) << "before the first line behind those that are missing";
  EXPECT_LT(num_read, num_added);
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

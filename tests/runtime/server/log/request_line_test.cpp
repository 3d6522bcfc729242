#include "runtime/server/log/request_line.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace ferry {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::system_clock;

EndedRequest chat() {
  return {.time = system_clock::time_point(milliseconds(1'764'489'154'067)),
          .port = "http",
          .method = "POST",
          .route = "/v1/chat/completions",
          .status = 200,
          .key = "key 2",
          .figures = {.id = "chatcmpl-7",
                      .num_choices = 1,
                      .prompt_tokens = 23,
                      .cached_tokens = 16,
                      .completion_tokens = 24,
                      .queue_s = 0.0001234,
                      .first_token_s = 0.25},
          .total_s = 1.5};
}

TEST(RequestLine, JsonHasEveryFieldInItsOrder) {
  EXPECT_EQ(json_line(chat()),
            "{\"time\":\"2025-11-30T07:52:34.067Z\",\"port\":\"http\",\"method\":\"POST\",\"route\":\"/v1/chat/completions\","
            "\"status\":200,\"id\":\"chatcmpl-7\",\"key\":\"key 2\",\"choices\":1,\"prompt_tokens\":23,\"cached_tokens\":16,"
            "\"completion_tokens\":24,\"queue_s\":0.000123,\"first_token_s\":0.25,\"total_s\":1.5}\n");
}

TEST(RequestLine, TextHasTheSameFields) {
  EXPECT_EQ(text_line(chat()),
            "time=2025-11-30T07:52:34.067Z port=http method=POST route=/v1/chat/completions status=200 id=chatcmpl-7 "
            "key=\"key 2\" choices=1 prompt_tokens=23 cached_tokens=16 completion_tokens=24 queue_s=0.000123 "
            "first_token_s=0.25 total_s=1.5\n");
}

TEST(RequestLine, WhatIsNotKnownIsNullAndLeftOutOfText) {
  const EndedRequest refused{
      .time = {}, .port = "grpc", .method = "", .route = "/a/B", .status = 16, .key = "", .figures = {}, .total_s = 0};
  const json fields = json::parse(json_line(refused));
  for (const char* name :
       {"method", "id", "key", "choices", "prompt_tokens", "cached_tokens", "completion_tokens", "queue_s", "first_token_s"})
    EXPECT_TRUE(fields.at(name).is_null()) << name;
  EXPECT_EQ(fields.size(), 14U);
  EXPECT_EQ(text_line(refused), "time=1970-01-01T00:00:00.000Z port=grpc route=/a/B status=16 total_s=0.0\n");
}

/// Text that a client chose cannot end the line, be taken for another field or act on a terminal.
TEST(RequestLine, TextOfAClientIsEscaped) {
  EndedRequest request = chat();
  for (const std::string& id :
       {std::string("a\nstatus=200"), std::string("\x1b[2J"), std::string("a\0b", 3), std::string("é\xE2\x80\xAE"),
        std::string("\xFF\xFE"), std::string("a b=\"c\\"), std::string(100'000, '\x01')}) {
    request.figures.id = id;
    for (const std::string& line : {json_line(request), text_line(request)}) {
      EXPECT_LE(line.size(), kMaxLineBytes);
      EXPECT_EQ(line.find('\n'), line.size() - 1);
      for (std::size_t i = 0; i + 1 < line.size(); ++i) EXPECT_TRUE(line[i] >= ' ' && line[i] <= '~') << line;
    }
    EXPECT_TRUE(json::parse(json_line(request)).at("id").is_string());
    const std::string text = text_line(request);
    EXPECT_EQ(text.find(" status="), text.rfind(" status=")) << text;
  }
  request.figures.id = "a\nb c";
  EXPECT_EQ(json::parse(json_line(request)).at("id"), "a\nb c");
}

TEST(RequestLine, GapSaysHowManyLinesAreMissing) {
  EXPECT_EQ(json_gap({}, 3), "{\"time\":\"1970-01-01T00:00:00.000Z\",\"dropped_lines\":3}\n");
  EXPECT_EQ(text_gap({}, 3), "time=1970-01-01T00:00:00.000Z dropped_lines=3\n");
}

}  // namespace
}  // namespace ferry

#include "runtime/server/http/request_head.h"

#include <gtest/gtest.h>

#include <boost/asio/buffer.hpp>

namespace ferry {
namespace {

class RequestHeadTest : public ::testing::Test {
 protected:
  /// Has the parser read the head of `text`; whether it took it.
  bool parse(const std::string& text) {
    parser_.emplace();
    set_limits(*parser_, limits_);
    boost::system::error_code error;
    parser_->put(boost::asio::buffer(text), error);
    return parser_->is_header_done();
  }

  /// The status that a POST with `headers` is refused with, 400 by the parser itself; 200 if it is not.
  int check(const std::string& headers, const std::string& version = "1.1") {
    if (!parse("POST /do HTTP/" + version + "\r\nHost: localhost\r\n" + headers + "\r\n")) return 400;
    const std::optional<HttpResponse> refusal = check_head(*parser_, limits_);
    return refusal ? refusal->status : 200;
  }

  ServerLimits limits_;
  std::optional<HttpParser> parser_;
};

TEST_F(RequestHeadTest, ReadsLineAndHeaders) {
  ASSERT_TRUE(parse("PUT /a?b?c=d HTTP/1.1\r\nHost: h\r\nX-Some: Thing\r\nx-some: other\r\nContent-Length: 2\r\n\r\n{}"));
  const HttpRequest request = read_head(*parser_, "10.1.2.3");
  EXPECT_EQ(request.method, "PUT");
  EXPECT_EQ(request.path, "/a");
  EXPECT_EQ(request.header("x-some"), "Thing");
  EXPECT_EQ(request.count("x-some"), 2);
  EXPECT_EQ(request.local_address, "10.1.2.3");
  EXPECT_TRUE(request.has_body);
}

// What Ferry took for the next request, a proxy before it may have sent as the body of this one.
TEST_F(RequestHeadTest, ABodyHasOneEnd) {
  EXPECT_EQ(check("Transfer-Encoding: chunked\r\n"), 200);
  EXPECT_EQ(check("Transfer-Encoding: Chunked \r\n"), 200);
  EXPECT_EQ(check("Content-Length: 5\r\n"), 200);
  for (const char* coding : {"xchunked", "gzip, chunked", "chunked, gzip", "identity", ""}) {
    const std::string header = std::string("Transfer-Encoding: ") + coding + "\r\n", length = "Content-Length: 3\r\n";
    EXPECT_EQ(check(header), 501) << coding;
    EXPECT_GE(check(length + header), 400) << coding;
    EXPECT_GE(check(header + length), 400) << coding;
  }
  EXPECT_EQ(check("Transfer-Encoding: chunked\r\n", "1.0"), 400);
}

TEST_F(RequestHeadTest, HeadersAreCounted) {
  limits_.http_headers = 3;
  EXPECT_EQ(check("a: b\r\na: b\r\n"), 200);
  EXPECT_EQ(check("a: b\r\na: b\r\na: b\r\n"), 431);
}

}  // namespace
}  // namespace ferry

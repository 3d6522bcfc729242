#include "runtime/server/http/guard.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

using Headers = std::vector<std::pair<std::string, std::string>>;

class HttpGateTest : public ::testing::Test {
 protected:
  HttpGateTest() {
    router_.add("POST", "/do", {.handler = {}, .blocking = [](const HttpRequest&) { return HttpResponse{}; }});
    router_.add("GET", "/health", {.handler = {}, .blocking = {}, .guard = HttpGuard::kOpen});
    router_.add("GET", "/metrics", {.handler = {}, .blocking = {}, .guard = HttpGuard::kNoKey});
  }

  /// The status that `headers` of a POST to /do are refused with; 200 if they are not.
  int judge(const Headers& headers, bool has_body = false, const std::string& path = "/do",
            const std::string& method = "POST") {
    const HttpGate gate(access_, router_, bound_host_);
    const HttpGate::Verdict verdict = gate.judge({.method = method,
                                                  .path = path,
                                                  .headers = headers,
                                                  .body = {},
                                                  .local_address = local_address_,
                                                  .has_body = has_body});
    caller_ = verdict.caller;
    headers_ = verdict.headers;
    if (verdict.answer) headers_.insert(headers_.end(), verdict.answer->headers.begin(), verdict.answer->headers.end());
    EXPECT_NE(verdict.route == nullptr, !verdict.answer);
    EXPECT_EQ(verdict.asked, router_.find(method, path)) << "also of a request that is refused";
    return verdict.answer ? verdict.answer->status : 200;
  }

  Access access_;
  HttpRouter router_;
  std::string bound_host_ = "127.0.0.1", local_address_ = "127.0.0.1";
  std::optional<int> caller_;
  Headers headers_;  // of the answer, as far as the gate knows
};

TEST_F(HttpGateTest, HostMustBeThisServer) {
  for (const char* host : {"localhost", "localhost:8000", "LOCALHOST:1", "127.0.0.1:8000", "127.1.2.3", "[::1]:8000", "[::1]"})
    EXPECT_EQ(judge({{"host", host}}), 200) << host;
  for (const char* host :
       {"evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example", "127.evil.example", "10.1.2.3",
        "", ":8000", "[", "[]", "evil.example@localhost", "localhost evil.example"})
    EXPECT_EQ(judge({{"host", host}}), 403) << host;
  EXPECT_EQ(judge({}), 400);
  EXPECT_EQ(judge({{"host", "localhost"}, {"host", "evil.example"}}), 400);
  access_.allowed_hosts = {"ferry.example"};
  EXPECT_EQ(judge({{"host", "Ferry.Example:443"}}), 200);
  bound_host_ = "0.0.0.0";
  local_address_ = "10.1.2.3";  // what the client connected to: no name of a stranger leads there
  EXPECT_EQ(judge({{"host", "10.1.2.3:8000"}}), 200);
  EXPECT_EQ(judge({{"host", "10.1.2.4:8000"}}), 403);
  bound_host_ = "[2001:DB8::1]";
  EXPECT_EQ(judge({{"host", "[2001:db8::1]:8000"}}), 200);
}

TEST_F(HttpGateTest, PagesOfOtherSitesAreRefused) {
  const auto with = [&](const char* name, const char* value) { return judge({{"host", "localhost:8000"}, {name, value}}); };
  EXPECT_EQ(with("origin", "http://localhost:8000"), 200);
  EXPECT_EQ(with("origin", "https://LOCALHOST:8000"), 200);
  for (const char* origin : {"http://evil.example", "null", "", "http://localhost:3000", "http://localhost", "file://",
                             "http://localhost:8000.evil.example", "http://localhost:8000/"})
    EXPECT_EQ(with("origin", origin), 403) << origin;
  EXPECT_EQ(with("sec-fetch-site", "same-origin"), 200);
  EXPECT_EQ(with("sec-fetch-site", "none"), 200);
  EXPECT_EQ(with("sec-fetch-site", "cross-site"), 403);
  EXPECT_EQ(with("sec-fetch-site", "same-site"), 403);
}

TEST_F(HttpGateTest, BodiesMustBeJson) {
  const auto with = [&](const char* type, bool has_body) {
    return judge({{"host", "localhost"}, {"content-type", type}}, has_body);
  };
  EXPECT_EQ(with("application/json", true), 200);
  EXPECT_EQ(with("Application/JSON ; charset=utf-8", true), 200);
  EXPECT_EQ(with("application/json", false), 200);
  for (const char* type : {"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "",
                           "application/jsonp", "text/plain; application/json"}) {
    EXPECT_EQ(with(type, true), 415) << type;
    EXPECT_EQ(with(type, false), 415) << type;
  }
  EXPECT_EQ(judge({{"host", "localhost"}}, true), 415);
  const auto encoded = [&](const std::string& encoding) {
    return judge({{"host", "localhost"}, {"content-type", "application/json"}, {"content-encoding", encoding}}, true);
  };
  EXPECT_EQ(encoded("gzip"), 415);
  EXPECT_EQ(encoded("Identity"), 200);
  EXPECT_EQ(judge({{"host", "localhost"}}, false), 200);
}

TEST_F(HttpGateTest, KeysComeBeforeWhatIsThere) {
  access_.keys = ApiKeys({"first-key-1", "second-key-2"});
  const auto with = [&](const char* name, const char* value) { return judge({{"host", "localhost"}, {name, value}}); };
  EXPECT_EQ(judge({{"host", "localhost"}}), 401);
  EXPECT_EQ(judge({{"host", "localhost"}}, false, "/nothing"), 401);
  EXPECT_EQ(with("authorization", "Bearer second-key-2"), 200);
  EXPECT_EQ(caller_, 1);
  EXPECT_EQ(with("authorization", "bearer first-key-1"), 200);
  EXPECT_EQ(caller_, 0);
  EXPECT_EQ(with("x-api-key", "first-key-1"), 200);
  for (const char* value :
       {"Bearer ", "Bearer", "Basic first-key-1", "first-key-1", "Bearer first-key-1 ", "Bearer  first-key-1"})
    EXPECT_EQ(with("authorization", value), 401) << value;
  EXPECT_EQ(judge({{"host", "localhost"}, {"x-api-key", "x"}, {"x-api-key", "first-key-1"}}), 400);
}

TEST_F(HttpGateTest, HealthIsForAnybody) {
  access_.keys = ApiKeys({"first-key-1"});
  EXPECT_EQ(judge({}, false, "/health", "GET"), 200);
  EXPECT_EQ(judge({{"host", "balancer.example"}, {"origin", "http://evil.example"}}, false, "/health", "HEAD"), 200);
  EXPECT_EQ(judge({{"host", "localhost"}, {"x-api-key", "first-key-1"}}, false, "/health", "POST"), 405);
}

TEST_F(HttpGateTest, WatchersNeedNoKeyButTheRightName) {
  access_.keys = ApiKeys({"first-key-1"});
  const auto get = [&](const Headers& headers) { return judge(headers, false, "/metrics", "GET"); };
  EXPECT_EQ(get({{"host", "localhost"}}), 200);
  EXPECT_EQ(get({{"host", "localhost"}, {"authorization", "Bearer wrong"}}), 200);
  EXPECT_EQ(get({{"host", "evil.example"}}), 403);
  EXPECT_EQ(get({{"host", "localhost"}, {"origin", "http://evil.example"}}), 403);
  EXPECT_EQ(get({}), 400);
}

TEST_F(HttpGateTest, PagesOfAllowedOriginsMayAsk) {
  access_.keys = ApiKeys({"first-key-1"});
  access_.allowed_origins = {"https://chat.example:8443"};
  const Headers page = {{"host", "localhost:8000"}, {"origin", "https://Chat.example:8443"}, {"sec-fetch-site", "cross-site"}};
  const auto with = [&](const char* name, const char* value) {
    Headers headers = page;
    headers.emplace_back(name, value);
    return headers;
  };
  EXPECT_EQ(judge(with("x-api-key", "first-key-1")), 200);
  const Headers readable = {{"Access-Control-Allow-Origin", "https://Chat.example:8443"},
                            {"Access-Control-Expose-Headers", "X-Request-Id, Retry-After"},
                            {"Vary", "Origin"}};
  EXPECT_EQ(headers_, readable);
  EXPECT_EQ(judge(page), 401);
  EXPECT_EQ(Headers(headers_.begin(), headers_.begin() + 3), readable) << "the page may read why";
  EXPECT_EQ(judge(page, false, "/health", "GET"), 200);
  EXPECT_EQ(headers_, readable);
  Headers wrong_host = page;
  wrong_host[0].second = "evil.example";
  EXPECT_EQ(judge(wrong_host), 403);
  for (const char* origin : {"https://chat.example", "http://chat.example:8443", "https://chat.example:84433", "null", ""}) {
    EXPECT_EQ(judge({{"host", "localhost:8000"}, {"origin", origin}, {"x-api-key", "first-key-1"}}), 403) << origin;
    EXPECT_EQ(headers_, Headers()) << origin;
  }
  EXPECT_EQ(judge({{"host", "localhost"}, {"sec-fetch-site", "cross-site"}, {"x-api-key", "first-key-1"}}), 403)
      << "a page that does not say whose it is";
}

TEST_F(HttpGateTest, BrowsersAskFirstWithoutAKey) {
  access_.keys = ApiKeys({"first-key-1"});
  access_.allowed_origins = {"https://chat.example"};
  const auto ask = [&](const char* origin, const char* path) {
    return judge({{"host", "localhost"},
                  {"origin", origin},
                  {"access-control-request-method", "POST"},
                  {"access-control-request-headers", "authorization,content-type"}},
                 false, path, "OPTIONS");
  };
  EXPECT_EQ(ask("https://chat.example", "/do"), 200);
  EXPECT_EQ(headers_, (Headers{{"Access-Control-Allow-Origin", "https://chat.example"},
                               {"Access-Control-Expose-Headers", "X-Request-Id, Retry-After"},
                               {"Vary", "Origin"},
                               {"Access-Control-Allow-Methods", "POST"},
                               {"Access-Control-Max-Age", "600"},
                               {"Access-Control-Allow-Headers", "authorization,content-type"}}));
  EXPECT_EQ(ask("https://chat.example", "/nothing"), 401);
  EXPECT_EQ(ask("https://evil.example", "/do"), 403);
  EXPECT_EQ(headers_, Headers());
  EXPECT_EQ(judge({{"host", "localhost"}, {"origin", "https://chat.example"}}, false, "/do", "OPTIONS"), 401)
      << "not that question";
  access_.allowed_origins = {"*"};
  EXPECT_EQ(ask("null", "/do"), 200);
}

}  // namespace
}  // namespace ferry

#include "launch/top/status_client.h"

#include <gtest/gtest.h>

#include <fstream>

#include "runtime/base/error.h"
#include "runtime/options/top_options.h"
#include "runtime/server/http/http_server.h"
#include "tests/runtime/server/patient_limits.h"
#include "tests/support/eventually.h"
#include "tests/support/reserved_port.h"
#include "tests/support/temp_folder.h"

namespace ferry {
namespace {

StatusTarget target_of(const std::string& text) { return make_target({.target = text}); }

std::string target_refusal(const TopOptions& options) {
  try {
    make_target(options);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
}

TEST(StatusTarget, IsAnAddressOrAUrl) {
  EXPECT_EQ(target_of("127.0.0.1:8000").status_url, "http://127.0.0.1:8000/status.json");
  EXPECT_EQ(target_of("[::1]:8000").status_url, "http://[::1]:8000/status.json");
  EXPECT_EQ(target_of("https://ferry.example").status_url, "https://ferry.example/status.json");
  EXPECT_EQ(target_of("http://proxy:80/ferry/").status_url, "http://proxy:80/ferry/status.json");
  EXPECT_EQ(make_target({.target = "host:8000", .tls_ca = "ca.pem"}).server, "https://host:8000");
}

TEST(StatusTarget, AnythingElseIsRefused) {
  for (const char* text : {"", "host", "host:port", "host:99999", "ftp://host:1", "http://", "http://key@host:8000",
                           "http://host/?a=b", "http://host/#a", "host:8000 x", "file:///etc/passwd"})
    EXPECT_NE(target_refusal({.target = text}).find("allowed: HOST:PORT"), std::string::npos) << text;
  EXPECT_NE(target_refusal({.target = "http://host:8000", .tls_ca = "ca.pem"}).find("https"), std::string::npos);
}

TEST(StatusTarget, HasAKey) {
  const test::TempFolder temp;
  const auto file = temp.path() / "keys";
  std::ofstream(file) << "# mine\nfirst-key\nsecond-key\n";
  EXPECT_EQ(make_target({.api_key_file = file}).key, "first-key");
  EXPECT_EQ(make_target({.api_key_file = file, .api_key = "of-the-environment"}).key, "of-the-environment");
  EXPECT_NE(target_refusal({.api_key = "a key\r\nwith: more"}).find("FERRY_API_KEY"), std::string::npos);
}

constexpr StatusTimes kPatient{.answer = kTestLimit, .connect = kTestLimit};

/// A server whose status is `answer`.
class StatusClientTest : public testing::Test {
 protected:
  std::string serve(const BlockingHttpHandler& answer) {
    HttpRouter router;
    router.add("GET", "/status.json", {.handler = {}, .blocking = answer});
    server_.emplace(HttpServerOptions{.address = "127.0.0.1:0", .limits = test::patient_limits()}, access_, std::move(router));
    return server_->address();
  }
  static StatusAnswer ask(StatusClient& client) {
    client.ask();
    std::optional<StatusAnswer> answer;
    eventually([&] { return (answer = client.wait({}, std::chrono::seconds(1))).has_value(); }, "an answer of the server");
    return *answer;
  }

  Access access_;
  std::optional<HttpServer> server_;
};

TEST_F(StatusClientTest, AsksAgainAndAgain) {
  int num_asked = 0;
  StatusClient client(make_target({.target = serve([&](const HttpRequest& request) -> HttpResponse {
                                     const auto key = request.header("authorization");
                                     return {.body = std::to_string(++num_asked) + std::string(key.value_or(""))};
                                   }),
                                   .api_key = "some-key"}),
                      kPatient);
  EXPECT_EQ(ask(client).body, "1Bearer some-key");
  EXPECT_EQ(ask(client).body, "2Bearer some-key");
  EXPECT_FALSE(client.is_asking());
}

TEST_F(StatusClientTest, ComplaintsSayWhatTheServerSaid) {
  StatusClient client(target_of(serve([](const HttpRequest&) { return http_error(401, "a key is missing or wrong"); })),
                      kPatient);
  const StatusAnswer refused = ask(client);
  EXPECT_NE(refused.complaint.find("answers with status 401: a key is missing or wrong"), std::string::npos)
      << refused.complaint;
  EXPECT_TRUE(refused.is_refused);
}

TEST_F(StatusClientTest, AnEndlessAnswerIsCut) {
  StatusClient client(target_of(serve([](const HttpRequest&) -> HttpResponse {
                        return {.body = std::string(static_cast<std::size_t>(StatusClient::kMaxBytes) + 1, 'x')};
                      })),
                      kPatient);
  EXPECT_NE(ask(client).complaint.find("more than 1 MiB"), std::string::npos);
}

TEST_F(StatusClientTest, AwayIsOneLine) {
  const test::ReservedPort nobody;
  StatusClient client(target_of(nobody.address()), kPatient);
  const StatusAnswer away = ask(client);
  EXPECT_EQ(away.complaint.find("http://" + nobody.address() + " is away: "), 0U) << away.complaint;
  EXPECT_FALSE(away.is_refused);
}

}  // namespace
}  // namespace ferry

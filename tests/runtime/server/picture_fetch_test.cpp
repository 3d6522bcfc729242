#include "runtime/server/picture_fetch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "tests/runtime/server/scripted_server.h"
#include "tests/support/eventually.h"
#include "tests/support/expect_error.h"
#include "tests/support/reserved_port.h"
#include "tests/support/temp_folder.h"

namespace ferry {
namespace {

using std::chrono::milliseconds;
using test::expect_error;
using test::ScriptedConnection;
using test::ScriptedServer;

RemotePictures patient_pictures() {
  return {.hosts = {}, .max_bytes = 1000, .timeout = kTestLimit, .connect_timeout = kTestLimit};
}

bool anywhere(const sockaddr*) { return true; }

RemoteUrl url_of(const ScriptedServer& server, const std::string& scheme = "http", const std::string& host = "127.0.0.1") {
  return {.scheme = scheme, .host = host, .port = server.port(), .target = "/a.png?b"};
}

std::string fetch(const RemoteUrl& url, const RemotePictures& allowed = patient_pictures(),
                  const FetchTrust& trust = {.may_connect = anywhere, .authorities = {}}) {
  const std::vector<std::byte> bytes = fetch_remote(url, allowed, trust, "picture 7");
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Sends `answer` to everybody.
ScriptedServer::Script say(std::string answer) {
  return [answer = std::move(answer)](ScriptedConnection& connection, const std::string&) { connection.send(answer); };
}

std::string ok(const std::string& body) {
  return "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

void expect_refused(const std::string& answer, ErrorCode code, const std::vector<std::string>& parts) {
  const ScriptedServer server(say(answer));
  std::vector<std::string> all{"picture 7: 'http://127.0.0.1:"};
  all.insert(all.end(), parts.begin(), parts.end());
  expect_error([&] { fetch(url_of(server)); }, code, all);
}

TEST(PictureFetch, GivesTheBytes) {
  std::string head;
  const ScriptedServer server([&head](ScriptedConnection& connection, const std::string& request) {
    head = request;
    connection.send(ok(std::string("\0\xff picture", 10)));
  });
  EXPECT_EQ(fetch(url_of(server)), std::string("\0\xff picture", 10));
  EXPECT_TRUE(head.starts_with("GET /a.png?b HTTP/1.1\r\n")) << head;
  EXPECT_NE(head.find("\r\nHost: 127.0.0.1:" + std::to_string(server.port()) + "\r\n"), std::string::npos) << head;
  for (const char* none : {"Accept-Encoding", "Cookie", "Authorization", "Referer"})
    EXPECT_EQ(head.find(none), std::string::npos) << head;
}

TEST(PictureFetch, TakesBodiesOfAnyFraming) {
  EXPECT_EQ(fetch(url_of(ScriptedServer(say(ok(""))))), "");
  EXPECT_EQ(fetch(url_of(ScriptedServer(say("HTTP/1.0 200 OK\r\n\r\nto the end")))), "to the end");
  EXPECT_EQ(
      fetch(url_of(ScriptedServer(say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n")))),
      "abc");
  EXPECT_EQ(fetch(url_of(ScriptedServer(say("HTTP/1.1 103 Early Hints\r\n\r\n" + ok("x"))))), "x");
  EXPECT_EQ(fetch(url_of(ScriptedServer(say("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx")))), "x");
}

TEST(PictureFetch, TakesStatus200Only) {
  const std::string rest = "\r\nContent-Length: 3\r\n\r\nabc";
  for (const char* status : {"201", "204", "206", "304", "401", "403", "404", "410"})
    expect_refused(std::string("HTTP/1.1 ") + status + " X" + rest, ErrorCode::kInvalidArgument,
                   {std::string("status ") + status, "allowed: 200"});
  for (const char* status : {"429", "500", "503"})
    expect_refused(std::string("HTTP/1.1 ") + status + " X" + rest, ErrorCode::kUnavailable, {std::string("status ") + status});
  expect_refused("HTTP/1.1 404 X\r\nContent-Length: 1000000000\r\n\r\n", ErrorCode::kInvalidArgument, {"status 404"});
}

TEST(PictureFetch, FollowsNoRedirect) {
  const ScriptedServer other(say(ok("secret")));
  for (const char* status : {"301", "302", "303", "307", "308"}) {
    const ScriptedServer server(say(std::string("HTTP/1.1 ") + status +
                                    " X\r\nContent-Length: 0\r\nLocation: http://127.0.0.1:" + std::to_string(other.port()) +
                                    "/\r\n\r\n"));
    expect_error([&] { fetch(url_of(server)); }, ErrorCode::kInvalidArgument, {"status 3", "no redirects"});
    EXPECT_EQ(server.num_connections(), 1);
  }
  EXPECT_EQ(other.num_connections(), 0);
}

TEST(PictureFetch, BytesAreBounded) {
  EXPECT_EQ(fetch(url_of(ScriptedServer(say(ok(std::string(1000, 'x')))))).size(), 1000U);
  const std::string more = "more than 1000 bytes";
  expect_refused(ok(std::string(1001, 'x')), ErrorCode::kInvalidArgument, {more});
  expect_refused("HTTP/1.1 200 OK\r\nContent-Length: 9000000000000\r\n\r\n", ErrorCode::kInvalidArgument, {more});
  expect_refused("HTTP/1.1 200 OK\r\n\r\n" + std::string(1001, 'x'), ErrorCode::kInvalidArgument, {more});
  // Without an end and without a length; the server notices that nobody listens.
  bool is_left = false;
  {
    const ScriptedServer server([&is_left](ScriptedConnection& connection, const std::string&) {
      connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
      const std::string chunk = "400\r\n" + std::string(1024, 'x') + "\r\n";
      for (int i = 0; i < 100000 && !is_left; ++i) is_left = !connection.send(chunk);
    });
    expect_error([&] { fetch(url_of(server)); }, ErrorCode::kInvalidArgument, {more});
  }
  EXPECT_TRUE(is_left);
}

TEST(PictureFetch, HeadersAreBounded) {
  std::string many = "HTTP/1.1 200 OK\r\n";
  for (int i = 0; i < 2000; ++i) many += "X-Name: " + std::string(100, 'x') + "\r\n";
  expect_refused(many + "\r\n", ErrorCode::kUnavailable, {"headers of more than 65536 bytes"});
}

TEST(PictureFetch, BrokenAnswersAreTheHostsFault) {
  expect_refused("", ErrorCode::kUnavailable, {"cannot be fetched"});
  expect_refused("GIF89a, without a head", ErrorCode::kUnavailable, {"cannot be fetched"});
  expect_refused("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", ErrorCode::kUnavailable, {"cannot be fetched"});
  expect_refused("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n", ErrorCode::kUnavailable,
                 {"cannot be fetched"});
  const test::ReservedPort nobody_listens;
  const RemoteUrl closed{.scheme = "http", .host = "127.0.0.1", .port = nobody_listens.port(), .target = "/"};
  expect_error([&] { fetch(closed); }, ErrorCode::kUnavailable, {"cannot be fetched"});
  const RemoteUrl nobody{.scheme = "http", .host = "nobody.invalid", .port = 80, .target = "/"};
  expect_error([&] { fetch(nobody); }, ErrorCode::kUnavailable, {"nobody.invalid", "cannot be fetched"});
}

TEST(PictureFetch, EndsAtTheDeadline) {
  constexpr int kMany = 50 << 20;
  const RemotePictures hurry{.hosts = {}, .max_bytes = kMany, .timeout = milliseconds(50)};
  const auto expect_late = [&](ScriptedServer::Script script) {
    const ScriptedServer server(std::move(script));
    expect_error([&] { fetch(url_of(server), hurry); }, ErrorCode::kDeadlineExceeded, {"picture 7: ", "within 50 ms"});
  };
  expect_late([](ScriptedConnection& connection, const std::string&) { connection.wait(); });
  expect_late([](ScriptedConnection& connection, const std::string&) {
    connection.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc");
    connection.wait();
  });
  expect_late([](ScriptedConnection& connection, const std::string&) {  // never silent
    connection.send("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(kMany) + "\r\n\r\n");
    while (connection.send("x")) continue;
  });
}

TEST(PictureFetch, WhatCheckInThrowsEndsIt) {
  std::atomic<bool> has_begun = false;
  const ScriptedServer server([&](ScriptedConnection& connection, const std::string&) {
    connection.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc");
    has_begun = true;
    connection.wait();
  });
  RemotePictures allowed = patient_pictures();
  allowed.check_in = [&] {
    if (has_begun) throw Error(ErrorCode::kCancelled, "the caller left");
  };
  expect_error([&] { fetch(url_of(server), allowed); }, ErrorCode::kCancelled, {"the caller left"});
}

TEST(PictureFetch, ConnectsToPublicAddressesOnly) {
  const ScriptedServer server(say(ok("secret")));
  const auto refuse = [&](const std::string& scheme, const std::string& host) {
    expect_error([&] { fetch(url_of(server, scheme, host), patient_pictures(), {}); }, ErrorCode::kInvalidArgument,
                 {"picture 7: ", host, "without a public address"});
  };
  // A name, which is looked up like any other, and spellings that the look-up understands.
  for (const char* host : {"localhost", "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0.0.0.0"}) refuse("http", host);
  refuse("https", "localhost");
  const std::string port = std::to_string(server.port());
  expect_error([&] { fetch_picture("http://localhost:" + port + "/", {.hosts = {"localhost:" + port}}); },
               ErrorCode::kInvalidArgument, {"picture: ", "without a public address"});
  EXPECT_EQ(server.num_connections(), 0);
}

TEST(PictureFetch, AsksListedHostsOnly) {
  const ScriptedServer server(say(ok("secret")));
  for (const std::string& url : {"http://localhost:" + std::to_string(server.port()) + "/", std::string("file:///etc/passwd"),
                                 std::string("gopher://pictures.example/"), std::string()})
    expect_error([&] { fetch_picture(url, {.hosts = {"pictures.example"}}); }, ErrorCode::kInvalidArgument, {"allowed"});
  EXPECT_EQ(server.num_connections(), 0);
}

TEST(PictureFetch, UsesNoProxyOfTheEnvironment) {
  const ScriptedServer proxy(say(ok("by proxy"))), server(say(ok("direct")));
  const std::string address = "http://127.0.0.1:" + std::to_string(proxy.port());
  for (const char* name : {"http_proxy", "all_proxy", "ALL_PROXY"}) setenv(name, address.c_str(), 1);
  EXPECT_EQ(fetch(url_of(server)), "direct");
  for (const char* name : {"http_proxy", "all_proxy", "ALL_PROXY"}) unsetenv(name);
  EXPECT_EQ(proxy.num_connections(), 0);
}

TEST(PictureFetch, ChecksCertificates) {
  const test::TempFolder temp;
  const test::Certificate certificate = test::make_certificate("localhost"), stranger = test::make_certificate("localhost");
  std::ofstream(temp.path() / "known.pem") << certificate.certificate;
  std::ofstream(temp.path() / "stranger.pem") << stranger.certificate;
  const ScriptedServer server(say(ok("over TLS")), &certificate);
  const auto ask = [&](const std::string& host, const std::filesystem::path& authorities) {
    return fetch(url_of(server, "https", host), patient_pictures(), {.may_connect = anywhere, .authorities = authorities});
  };
  EXPECT_EQ(ask("localhost", temp.path() / "known.pem"), "over TLS");
  const auto refuse = [&](const std::string& host, const std::filesystem::path& authorities) {
    expect_error([&] { ask(host, authorities); }, ErrorCode::kUnavailable, {"picture 7: 'https://", "cannot be fetched"});
  };
  refuse("localhost", temp.path() / "stranger.pem");
  refuse("localhost", {});                         // of the system
  refuse("127.0.0.2", temp.path() / "known.pem");  // another name than the certificate's
  refuse("localhost", temp.path() / "none.pem");
}

TEST(PictureFetch, AnyThreadMayFetch) {
  const ScriptedServer server(say(ok("x")));
  std::vector<std::thread> threads;
  std::atomic<int> num_fetched = 0;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { num_fetched += static_cast<int>(fetch(url_of(server)).size()); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_fetched, 8);
}

}  // namespace
}  // namespace ferry

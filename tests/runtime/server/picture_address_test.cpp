#include "runtime/server/picture_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace ferry {
namespace {

using test::expect_error;
using testing::ElementsAre;

std::string read(std::string_view url, int64_t max_bytes = 1 << 20) {
  const std::vector<std::byte> bytes = read_data_url(url, max_bytes, "picture 7");
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void refuse_data(std::string_view url, const std::vector<std::string>& parts, int64_t max_bytes = 1 << 20) {
  SCOPED_TRACE(url.substr(0, 100));
  std::vector<std::string> all{"picture 7: ", "; allowed: "};
  all.insert(all.end(), parts.begin(), parts.end());
  expect_error([&] { read(url, max_bytes); }, ErrorCode::kInvalidArgument, all);
}

TEST(DataUrl, HoldsWhatBase64Says) {
  EXPECT_EQ(read("data:image/png;base64,"), "");
  EXPECT_EQ(read("data:image/png;base64,QQ=="), "A");
  EXPECT_EQ(read("data:image/png;base64,QUI="), "AB");
  EXPECT_EQ(read("data:image/png;base64,QUJD"), "ABC");
  EXPECT_EQ(read("data:image/png;base64,AP+/"), std::string("\0\xff\xbf", 3));
}

TEST(DataUrl, IsReadAsBrowsersDo) {
  EXPECT_EQ(read("DATA:Image/PNG;BASE64,QUJD"), "ABC");
  EXPECT_EQ(read("data: image/png ; charset=utf-8 ; base64 ,QUJD"), "ABC");
  EXPECT_EQ(read("data:;base64,QUJD"), "ABC");
  EXPECT_EQ(read("data:application/octet-stream;base64,QUJD"), "ABC");
  EXPECT_EQ(read("data:image/png;base64,QQ"), "A") << "padding may be missing";
  EXPECT_EQ(read("data:image/png;base64,QUI"), "AB");
  EXPECT_EQ(read("data:image/png;base64,QQ%3D%3d"), "A");
  EXPECT_EQ(read("data:image/png;base64,AP%2B%2f"), std::string("\0\xff\xbf", 3));
  EXPECT_EQ(read("data:image/png;base64,AP-_"), std::string("\0\xff\xbf", 3)) << "the alphabet for URLs";
  EXPECT_EQ(read("data:image/png;base64, QU\r\n\tJ%20D \n"), "ABC");
  EXPECT_EQ(read("data:image/png;base64,QR=="), "A") << "bits beyond the last byte do not matter";
}

TEST(DataUrl, OtherTypesAndEncodingsAreRefused) {
  refuse_data("data:text/html;base64,QUJD", {"'text/html'", "image/"});
  refuse_data("data:image;base64,QUJD", {"'image'"});
  refuse_data("data:image/svg+xml,%3Csvg/%3E", {"'image/svg+xml'", "base64"});
  refuse_data("data:,A", {"base64"});
  refuse_data("data:image/png;base64;charset=utf-8,QUJD", {"base64"});
  refuse_data("data:base64,QUJD", {"base64"});
  refuse_data("data:image/png;base64", {"no data URL"});
  refuse_data("image/png;base64,QUJD", {"no data URL"});
  refuse_data("", {"''", "no data URL"});
}

TEST(DataUrl, DamagedBase64IsRefused) {
  for (const char* data : {"Q", "QUJDQ", "QQ=", "QUI==", "QUJD=", "QQ===", "===="})
    refuse_data(std::string("data:image/png;base64,") + data, {"of padding", "multiple of 4"});
  refuse_data("data:image/png;base64,QUJD!A", {"'!' at byte 4"});
  refuse_data("data:image/png;base64,QQ==QQ==", {"'Q' at byte 4"});
  refuse_data("data:image/png;base64,QU%2AA", {"'%2A' at byte 2"});
  refuse_data("data:image/png;base64,QU%2", {"'%' at byte 2"});
  refuse_data("data:image/png;base64,QUJD#top", {"'#' at byte 4"});
  refuse_data(std::string("data:image/png;base64,QU\0D", 26), {R"('\x00' at byte 2)"});
  refuse_data("data:image/png;base64,QU\xff\xff", {"at byte 2"});
}

TEST(DataUrl, SizesAreBounded) {
  for (int64_t size = 1; size <= 6; ++size) {
    const std::string base64 = std::string("QUFBQUFB").substr(0, static_cast<std::size_t>((size * 8 + 5) / 6));
    EXPECT_EQ(read("data:;base64," + base64, size), std::string(static_cast<std::size_t>(size), 'A'));
    if (size > 1) refuse_data("data:;base64," + base64, {"more than " + std::to_string(size - 1) + " bytes"}, size - 1);
  }
  const std::string large = "data:image/png;base64," + std::string(1 << 20, 'A');
  EXPECT_EQ(read(large).size(), (1 << 20) * 3 / 4);
  refuse_data(large, {"more than 700000 bytes"}, 700000);
  refuse_data(std::string(1 << 20, 'A'), {"AAA…'", "no data URL"});
}

const std::vector<std::string> kHosts{"pictures.example", "example.com:8443", "93.184.216.34"};

void refuse_url(std::string_view url, const std::string& part) {
  SCOPED_TRACE(url.substr(0, 100));
  expect_error([&] { parse_remote_url(url, kHosts, "picture 7"); }, ErrorCode::kInvalidArgument,
               {"picture 7: '", part, "; allowed: "});
}

TEST(RemoteUrl, HostsToAskAreThoseAllowed) {
  const std::vector<std::string_view> urls{"https://pictures.example/a.png",  "HTTP://Pictures.EXAMPLE/b.png", "data:,",
                                           "https://other.example/c.png",     "http://example.com:8443/d.png", "nonsense",
                                           "https://pictures.example:1/e.png"};
  EXPECT_EQ(hosts_to_ask(urls, kHosts), (std::vector<std::string>{"example.com", "pictures.example"}));
  EXPECT_EQ(hosts_to_ask(urls, {}), std::vector<std::string>());
}

TEST(RemoteUrl, ListedHostsAreAllowed) {
  const auto text = [](std::string_view url) { return parse_remote_url(url, kHosts).text(); };
  EXPECT_EQ(text("https://pictures.example/a.png"), "https://pictures.example:443/a.png");
  EXPECT_EQ(text("HTTP://Pictures.EXAMPLE/A.png?B=c#top"), "http://pictures.example:80/A.png?B=c");
  EXPECT_EQ(text("http://pictures.example"), "http://pictures.example:80/");
  EXPECT_EQ(text("http://pictures.example?q=http://u:p@[::1]/"), "http://pictures.example:80/?q=http://u:p@[::1]/");
  EXPECT_EQ(text("https://pictures.example:443/"), "https://pictures.example:443/");
  EXPECT_EQ(text("https://example.com:8443/"), "https://example.com:8443/");
  EXPECT_EQ(text("http://example.com:8443/"), "http://example.com:8443/");
  EXPECT_EQ(text("http://93.184.216.34/"), "http://93.184.216.34:80/");
  EXPECT_EQ(parse_remote_url("http://a.b/", {"A.B"}).host, "a.b");
}

TEST(RemoteUrl, OtherHostsAndPortsAreRefused) {
  for (const char* url :
       {"http://localhost/", "http://example.com/", "https://example.com:443/", "http://pictures.example:8080/",
        "http://pictures.example:443/", "https://pictures.example:80/", "http://pictures.example./",
        "http://a.pictures.example/", "http://pictures.example.net/", "http://127.0.0.1/", "http://2130706433/",
        "http://0x7f000001/", "http://0x7f.1/", "http://017700000001/", "http://127.1/",
        "http://169.254.169.254/latest/meta-data/", "http://93.184.216.034/"})
    refuse_url(url, "not allowed");
  expect_error([] { parse_remote_url("https://pictures.example/", {}); }, ErrorCode::kInvalidArgument, {"allowed: data URLs"});
}

TEST(RemoteUrl, OtherFormsAreRefused) {
  for (const char* url : {"", "http", "http:", "http:/pictures.example/", "//pictures.example/", "pictures.example/a.png",
                          "file:///etc/passwd", "gopher://pictures.example/", "ftp://pictures.example/",
                          "data:image/png;base64,QUJD", "javascript:alert(1)", "dict://pictures.example:11211/"})
    refuse_url(url, "http:// and https://");
  for (const char* url :
       {"http://", "http:///etc/passwd", "http://:80/", "http://user@pictures.example/", "http://user:word@pictures.example/",
        "http://pictures.example@127.0.0.1/", "http://127.0.0.1\\@pictures.example/", "http://pictures.example\\.evil.example/",
        "http://[::1]/", "http://[::ffff:127.0.0.1]:80/", "http://[fe80::1%25eth0]/", "http://pictures%2eexample/",
        "http://pictures.example;evil/", "http://pictures.example&@evil/"})
    refuse_url(url, "no plain host");
  for (const char* url :
       {"http://pictures.example:/", "http://pictures.example:0/", "http://pictures.example:65536/",
        "http://pictures.example:000080/", "http://pictures.example:80:80/", "http://::1/", "http://pictures.example:8o/"})
    refuse_url(url, url == std::string_view("http://::1/") ? "no plain host" : "no port of 1 to 65535");
  for (const std::string& url :
       {std::string("http://pictures.example/\0.png", 29), std::string("http://pictures.example\0@evil/", 30),
        std::string("http://pictures.example/a b"), std::string("http://pictures.example/\r\nHost: evil"),
        std::string("http://pictures.example/\x7f"),
        std::string("http://pictures.ex\xe2\x80\x8b"
                    "ample/"),
        std::string(" http://pictures.example/")})
    refuse_url(url, "beyond ASCII");
  refuse_url("http://pictures.example/" + std::string(1 << 20, 'a'), "1048600 bytes; allowed: at most 8192");
}

TEST(RemoteHosts, AreNamesAndPorts) {
  EXPECT_THAT(parse_remote_hosts("Pictures.Example,example.com:8443,93.184.216.34,a_b-c"),
              ElementsAre("pictures.example", "example.com:8443", "93.184.216.34", "a_b-c"));
  for (const char* entry : {"",
                            " example.com",
                            "example.com ",
                            "https://example.com",
                            "example.com/",
                            "example.com/a",
                            "*",
                            "*.example.com",
                            "example.com:",
                            "example.com:0",
                            "example.com:65536",
                            "example.com:x",
                            "example.com:80:80",
                            ":80",
                            ".example.com",
                            "example.com.",
                            "a..b",
                            "user@example.com",
                            "[::1]",
                            "[2606:4700::1111]:443",
                            "::1",
                            "2130706433",
                            "0x7f.1",
                            "127.1",
                            "1.2.3.4.5",
                            "ex\xc3\xa4mple.com",
                            "a\nb"}) {
    for (const std::string& text : {std::string(entry), "a.example," + std::string(entry)})
      expect_error([&] { parse_remote_hosts(text); }, ErrorCode::kInvalidArgument,
                   {"--allow-remote-images: '", "; allowed: HOST or HOST:PORT"});
  }
  expect_error([] { parse_remote_hosts(std::string(254, 'a')); }, ErrorCode::kInvalidArgument, {"…'"});
  for (const char* entry : {"127.0.0.1", "10.1.2.3:80", "169.254.169.254"})
    expect_error([&] { parse_remote_hosts(entry); }, ErrorCode::kInvalidArgument, {entry, "no public address"});
}

}  // namespace
}  // namespace ferry

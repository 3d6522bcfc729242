#include "runtime/server/access.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "runtime/base/error.h"
#include "runtime/net/own_hosts.h"
#include "runtime/server/descriptor_limit.h"
#include "tests/support/expect_error.h"

namespace ferry {
namespace {

namespace fs = std::filesystem;

class AccessTest : public ::testing::Test {
 protected:
  ~AccessTest() override { fs::remove_all(folder_); }

  fs::path write(const std::string& name, const std::string& text) {
    fs::create_directories(folder_);
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }

  const fs::path folder_ = fs::temp_directory_path() / ("ferry_access_test_" + std::to_string(::getpid()));
};

TEST_F(AccessTest, EachKeyOfFileAndEnvironmentOpensAndNothingElse) {
  const fs::path file = write("keys", "# comment\nfirst-key-1\n\nsecond-key-2\r\n");
  const ApiKeys keys = load_access({.api_key_file = file, .api_key = "from-environment"}).keys;
  EXPECT_FALSE(keys.empty());
  EXPECT_EQ(keys.find("from-environment"), 0);
  EXPECT_EQ(keys.find("first-key-1"), 1);
  EXPECT_EQ(keys.find("second-key-2"), 2);
  EXPECT_EQ(keys.name(0), "FERRY_API_KEY");
  EXPECT_EQ(keys.name(1), "key 1");
  EXPECT_EQ(keys.name(2), "key 2");
  EXPECT_EQ(ApiKeys({"first-key-1"}).name(0), "key 1");
  for (const char* wrong :
       {"", "first-key-", "first-key-11", "First-key-1", "# comment", "second-key-2\r", "first-key-1\nsecond-key-2"})
    EXPECT_EQ(keys.find(wrong), std::nullopt) << wrong;
  EXPECT_EQ(keys.find(std::string(1 << 20, 'k')), std::nullopt);
  EXPECT_TRUE(ApiKeys().empty());
  EXPECT_EQ(ApiKeys().find(""), std::nullopt);
}

TEST_F(AccessTest, AKeyThatIsNoneIsRefusedWithoutShowingIt) {
  const auto refuse = [&](const std::string& text, const std::string& part) {
    const fs::path file = write("keys", text);
    try {
      load_access({.api_key_file = file});
      ADD_FAILURE() << text << " was accepted";
    } catch (const Error& error) {
      test::expect_one_line_with(error.what(), {"--api-key-file", part});
      EXPECT_EQ(std::string(error.what()).find("hidden"), std::string::npos) << error.what();
    }
  };
  refuse("a-good-key-0\nhidden1\n", "key 2 has 7 bytes");
  refuse("hidden with spaces\n", "key 1");
  refuse(std::string(513, 'k') + "\n", "513");
  refuse("\n# nothing\n", "no key");
  EXPECT_THROW(load_access({.api_key_file = folder_ / "missing"}), Error);
  EXPECT_THROW(load_access({.api_key_file = {}, .api_key = "short"}), Error);
}

TEST_F(AccessTest, ABearerIsTheKeyAndElseXApiKey) {
  EXPECT_EQ(presented_key("Bearer a", ""), "a");
  EXPECT_EQ(presented_key("bEARER a", "b"), "a");
  EXPECT_EQ(presented_key("Bearer ", "b"), "");
  EXPECT_EQ(presented_key("Basic a", "b"), "b");
  EXPECT_EQ(presented_key("a", ""), "");
  EXPECT_EQ(presented_key("", "b"), "b");
}

TEST_F(AccessTest, TlsFilesAreReadAndMustBePem) {
  const fs::path pem = write("pem", "-----BEGIN CERTIFICATE-----\n"), other = write("other", "text");
  const Access access =
      load_access({.tls_cert = pem, .tls_key = pem, .tls_client_ca = pem, .allowed_hosts = {"Ferry.Example"}});
  ASSERT_TRUE(access.tls.has_value());
  EXPECT_EQ(access.tls->client_ca, "-----BEGIN CERTIFICATE-----\n");
  EXPECT_EQ(access.allowed_hosts, std::vector<std::string>{"ferry.example"});
  EXPECT_FALSE(load_access({}).tls.has_value());
  try {
    load_access({.tls_cert = pem, .tls_key = other});
    ADD_FAILURE() << "no PEM was accepted";
  } catch (const Error& error) {
    test::expect_one_line_with(error.what(), {"--tls-key", "other", "PEM"});
  }
}

TEST_F(AccessTest, AnAllowedHostThatCouldNeverMatchIsRefused) {
  for (const char* host : {"name:8000", "[::1]", "[::1]:8000", "10.0.0.1:80", ":", ""})
    test::expect_error([&] { load_access({.allowed_hosts = {host}}); }, ErrorCode::kInvalidArgument,
                       {"--allowed-host", host, "allowed: a name or an address, without port and brackets"});
  EXPECT_EQ(load_access({.allowed_hosts = {"2001:DB8::1", "10.0.0.1"}}).allowed_hosts,
            (std::vector<std::string>{"2001:db8::1", "10.0.0.1"}));
}

TEST_F(AccessTest, AllowedOriginsAreAsBrowsersSendThem) {
  for (const char* origin :
       {"", "null", "chat.example", "ftp://chat.example", "https://", "https://chat.example/", "http://*.example",
        "https://chat.example:443", "http://chat.example:80", "http://[::1]:80", "https://me@chat.example"})
    test::expect_error([&] { load_access({.allowed_origins = {origin}}); }, ErrorCode::kInvalidArgument,
                       {"--allowed-origin", origin, "allowed: * or http[s]://HOST[:PORT]"});
  EXPECT_EQ(load_access({.allowed_origins = {"HTTPS://Chat.Example", "http://[::1]:3000", "http://localhost:443", "*"}})
                .allowed_origins,
            (std::vector<std::string>{"https://chat.example", "http://[::1]:3000", "http://localhost:443", "*"}));
}

TEST_F(AccessTest, AServerOnAllAddressesHasTheNamesOfItsMachine) {
  std::vector<std::string> own = own_hosts();
  ASSERT_FALSE(own.empty());
  own.insert(own.begin(), "ferry.example");
  for (const char* address : {"0.0.0.0:8000", "[::]:0"}) {
    Access access = load_access({.allowed_hosts = {"ferry.example"}});
    allow_own_hosts(access, address);
    EXPECT_EQ(access.allowed_hosts, own) << address;
  }
  for (const char* address : {"127.0.0.1:8000", "[::1]:8000", "10.0.0.1:8000", "somewhere:80", "off"}) {
    Access access;
    allow_own_hosts(access, address);
    EXPECT_EQ(access.allowed_hosts, std::vector<std::string>()) << address;
  }
}

TEST_F(AccessTest, AnOpenPortIsWarnedOf) {
  const Access open, keyed{.keys = ApiKeys({"some-key-1"}), .tls = {}, .allowed_hosts = {}};
  const Access tls{.keys = {}, .tls = TlsIdentity{"c", "k", ""}, .allowed_hosts = {}};
  const Access mutual{.keys = {}, .tls = TlsIdentity{"c", "k", "ca"}, .allowed_hosts = {}};
  EXPECT_FALSE(open_port_warning("http", "127.0.0.1:8000", open));
  EXPECT_FALSE(open_port_warning("http", "[::1]:8000", open));
  EXPECT_FALSE(open_port_warning("http", "0.0.0.0:8000", keyed));
  EXPECT_FALSE(open_port_warning("http", "0.0.0.0:8000", mutual));
  EXPECT_TRUE(open_port_warning("http", "0.0.0.0:8000", tls));
  const std::optional<std::string> warning = open_port_warning("grpc", "0.0.0.0:50051", open);
  ASSERT_TRUE(warning.has_value());
  test::expect_one_line_with(*warning, {"grpc", "0.0.0.0:50051", "--api-key-file"});
}

TEST(DescriptorLimit, ConnectionsFitIntoIt) {
  raise_descriptor_limit();
  EXPECT_GE(affordable_connections(1), 1);
  EXPECT_LE(affordable_connections(50), 50);
}

}  // namespace
}  // namespace ferry

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <cstdlib>

#include "runtime/server/health_route.h"
#include "runtime/server/http/http_server.h"
#include "runtime/server/http/tls_check.h"
#include "tests/runtime/server/http/call_box.h"
#include "tests/runtime/server/http/raw_client.h"
#include "tests/runtime/server/patient_limits.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace ferry {
namespace {

namespace fs = std::filesystem;
namespace net = boost::asio;

/// A client of TLS; after the first failure it sends nothing and reads nothing.
class TlsClient {
 public:
  TlsClient(const std::string& address, net::ssl::context& context) : stream_(io_, context) {
    const auto port = static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
    stream_.lowest_layer().connect({net::ip::make_address("127.0.0.1"), port}, error_);
    if (!error_) stream_.handshake(net::ssl::stream_base::client, error_);
  }
  void send(const std::string& bytes) {
    if (!error_) net::write(stream_, net::buffer(bytes), error_);
  }
  /// What comes up to and with `end`; all if `end` is empty or does not come.
  std::string read_until(const std::string& end) {
    std::string text;
    for (char next = 0; (end.empty() || !text.ends_with(end)) && !error_;) {
      if (net::read(stream_, net::buffer(&next, 1), error_) == 1) text += next;
    }
    return text;
  }

 private:
  net::io_context io_;
  net::ssl::stream<net::ip::tcp::socket> stream_;
  boost::system::error_code error_;
};

/// Certificates made by the openssl program: a signer, and a server's, a client's and a stranger's.
class TlsTest : public ::testing::Test {
 protected:
  TlsTest() {
    make_signer("ca");
    make_signer("stranger_ca");
    make_signed("server", "ca");
    make_signed("rsa_server", "ca", "rsa:2048");
    make_signed("client", "ca");
    make_signed("stranger", "stranger_ca");
  }

  fs::path cert(const std::string& name) const { return temp_.path() / (name + ".crt"); }
  fs::path key(const std::string& name) const { return temp_.path() / (name + ".key"); }

  void serve(const AccessOptions& options) {
    access_ = load_access(options);
    HttpRouter router;
    add_health_route(router, [] { return Health{}; });
    router.add("GET", "/call", {.handler = box_.handler(), .blocking = {}});
    server_.emplace(HttpServerOptions{.address = "127.0.0.1:0", .limits = test::patient_limits()}, access_, std::move(router));
  }

  /// What the server answers to a client of TLS that shows `name`'s certificate, if there is a name; empty if it does not
  /// answer.
  std::string ask(const std::string& name, int version = TLS1_3_VERSION, const char* ciphers = nullptr) {
    net::ssl::context context(net::ssl::context::tls_client);
    if (ciphers != nullptr) {
      EXPECT_EQ(SSL_CTX_set_cipher_list(context.native_handle(), ciphers), 1) << ciphers;
    }
    SSL_CTX_set_max_proto_version(context.native_handle(), version);
    SSL_CTX_set_min_proto_version(context.native_handle(), version);
    context.load_verify_file(cert("ca").string());
    context.set_verify_mode(net::ssl::verify_peer);
    if (!name.empty()) {
      context.use_certificate_chain_file(cert(name).string());
      context.use_private_key_file(key(name).string(), net::ssl::context::pem);
    }
    TlsClient client(server_->address(), context);
    client.send("GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    return client.read_until("");
  }

  const test::TempFolder temp_;
  Access access_;
  test::CallBox box_;
  std::optional<HttpServer> server_;

 private:
  void run(const std::string& arguments) const {
    const std::string command = "cd " + temp_.path().string() + " && openssl " + arguments + " 2>openssl.log";
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }
  void make_signer(const std::string& name) const {
    run("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=" + name + " -keyout " + name +
        ".key -out " + name + ".crt");
  }
  void make_signed(const std::string& name, const std::string& signer,
                   const std::string& key = "ec -pkeyopt ec_paramgen_curve:P-256") const {
    run("req -newkey " + key + " -nodes -subj /CN=" + name + " -keyout " + name + ".key -out " + name + ".csr");
    run("x509 -req -days 2 -in " + name + ".csr -CA " + signer + ".crt -CAkey " + signer + ".key -CAcreateserial -out " + name +
        ".crt");
  }
};

TEST_F(TlsTest, AnswersUnderTls) {
  serve({.tls_cert = cert("server"), .tls_key = key("server")});
  EXPECT_EQ(test::status_of(ask("")), 200);
  EXPECT_EQ(test::status_of(ask("", TLS1_2_VERSION)), 200);
  EXPECT_EQ(ask("", TLS1_1_VERSION), "");
  test::RawClient plain(server_->address());
  plain.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(test::status_of(plain.read_all()), 0);
  EXPECT_EQ(test::status_of(ask("")), 200);
}

TEST_F(TlsTest, TakesNoCipherWithoutAKeyOfItsOwnAndAuthentication) {
  serve({.tls_cert = cert("server"), .tls_key = key("server")});
  for (const char* good : {"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305"})
    EXPECT_EQ(test::status_of(ask("", TLS1_2_VERSION, good)), 200) << good;
  EXPECT_EQ(ask("", TLS1_2_VERSION, "ECDHE-ECDSA-AES128-SHA256"), "") << "CBC";
  serve({.tls_cert = cert("rsa_server"), .tls_key = key("rsa_server")});
  EXPECT_EQ(test::status_of(ask("", TLS1_2_VERSION, "ECDHE-RSA-AES128-GCM-SHA256")), 200);
  for (const char* bad : {"AES128-SHA", "AES128-GCM-SHA256", "ECDHE-RSA-AES128-SHA", "DHE-RSA-AES128-GCM-SHA256"})
    EXPECT_EQ(ask("", TLS1_2_VERSION, bad), "") << bad;
}

TEST_F(TlsTest, StreamsUnderTls) {
  serve({.tls_cert = cert("server"), .tls_key = key("server")});
  const std::string call = "GET /call HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const std::string large(300'000, 'x');
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    net::ssl::context context(net::ssl::context::tls_client);
    SSL_CTX_set_max_proto_version(context.native_handle(), version);
    auto client = std::make_optional<TlsClient>(server_->address(), context);
    for (int i = 0; i < 3; ++i) {  // one connection: the read that watches the client ends with each answer
      client->send(call);
      test::End end;
      const auto stream = box_.take()->stream({}, {end.callback()});
      EXPECT_TRUE(stream->write("a"));
      EXPECT_EQ(test::status_of(client->read_until("\r\n\r\n")), 200);
      EXPECT_EQ(client->read_until("a\r\n"), "1\r\na\r\n");
      EXPECT_TRUE(stream->write(large));
      stream->finish();
      EXPECT_EQ(client->read_until("\r\n0\r\n\r\n").size(), std::string("493e0\r\n").size() + large.size() + 7);
      EXPECT_EQ(end.wait(), HttpEnd::kAnswered);
    }
    client->send(call);
    test::End end;
    const auto stream = box_.take()->stream({}, {end.callback()});
    client.reset();
    EXPECT_EQ(end.wait(), HttpEnd::kGone);
  }
}

TEST_F(TlsTest, ClientsMustShowACertificateIfAskedFor) {
  serve({.tls_cert = cert("server"), .tls_key = key("server"), .tls_client_ca = cert("ca")});
  EXPECT_EQ(test::status_of(ask("client")), 200);
  EXPECT_EQ(test::status_of(ask("client", TLS1_2_VERSION)), 200);
  EXPECT_EQ(ask(""), "");
  EXPECT_EQ(ask("stranger"), "");
}

TEST_F(TlsTest, ClientsThatNeverShakeHandsAreClosed) {
  access_ = load_access({.tls_cert = cert("server"), .tls_key = key("server")});
  HttpServerOptions options{.address = "127.0.0.1:0", .limits = {}};
  options.limits.http_header_s = 0.05;
  server_.emplace(options, access_, HttpRouter());
  EXPECT_EQ(test::RawClient(server_->address()).read_all(), "");
}

TEST_F(TlsTest, FilesThatDoNotFitAreRefused) {
  const auto refuse = [&](const AccessOptions& options, const std::string& option) {
    test::expect_error([&] { serve(options); }, ErrorCode::kInvalidArgument, {option});
    test::expect_error([&] { check_tls(load_access(options)); }, ErrorCode::kInvalidArgument,
                       {option});  // without an HTTP port
  };
  refuse({.tls_cert = key("server"), .tls_key = key("server")}, "--tls-cert");
  refuse({.tls_cert = cert("server"), .tls_key = cert("server")}, "--tls-key");
  refuse({.tls_cert = cert("server"), .tls_key = key("client")}, "--tls-key");
  refuse({.tls_cert = cert("server"), .tls_key = key("server"), .tls_client_ca = key("ca")}, "--tls-client-ca");
}

}  // namespace
}  // namespace ferry

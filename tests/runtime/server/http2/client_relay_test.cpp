#include "runtime/server/http2/client_relay.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <condition_variable>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/file_descriptor.h"
#include "runtime/net/listeners.h"
#include "tests/runtime/server/http/raw_client.h"
#include "tests/runtime/server/http2/frames.h"
#include "tests/support/certificate.h"
#include "tests/support/eventually.h"

namespace ferry {
namespace {

namespace net = boost::asio;
using std::chrono::milliseconds;
using test::frame;
using test::greeting;
using test::kContinuationFrame;
using test::kEndHeaders;
using test::kHeadersFrame;
using test::kNoFlags;
using test::RawClient;

constexpr int64_t kMostHeaderBytes = 1000;

/// The end of a connection that a server library gets, used by a test in its place.
class LibraryEnd {
 public:
  explicit LibraryEnd(int fd) : fd_(fd) {}

  /// At least a byte; nothing once the relay has closed.
  std::string read_some() {
    if (!wait_for(POLLIN)) return "";
    std::string bytes(4096, '\0');
    const ssize_t count = ::recv(fd_.get(), bytes.data(), bytes.size(), 0);
    bytes.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    return bytes;
  }
  /// So many bytes, or all that come until the relay closes.
  std::string read(std::size_t size) {
    std::string text;
    while (text.size() < size) {
      const std::string piece = read_some();
      if (piece.empty()) return text;
      text += piece;
    }
    return text;
  }
  /// False once the relay has closed.
  bool write(std::string_view bytes) {
    while (!bytes.empty()) {
      if (!wait_for(POLLOUT)) return false;
      const ssize_t count = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
  }
  /// What the system calls the other end.
  std::string peer() const {
    sockaddr_un address{};
    socklen_t size = sizeof(address);
    EXPECT_EQ(getpeername(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    return {address.sun_path, size - offsetof(sockaddr_un, sun_path)};
  }
  void close() { fd_ = FileDescriptor(-1); }

 private:
  bool wait_for(short what) const {
    pollfd watched{.fd = fd_.get(), .events = what, .revents = 0};
    const int result = poll(&watched, 1, static_cast<int>(milliseconds(kTestLimit).count()));
    EXPECT_GT(result, 0) << "waited " << kTestLimit.count() << " minutes for the relay";
    return result > 0;
  }

  FileDescriptor fd_;
};

class ClientRelayTest : public testing::Test {
 protected:
  void start(const std::optional<TlsIdentity>& tls = std::nullopt) {
    relay_.emplace(rules_, tls, [this](int fd) {
      const std::scoped_lock lock(mutex_);
      ends_.push_back(fd);
      changed_.notify_all();
    });
  }
  ~ClientRelayTest() override {
    relay_.reset();
    for (const int fd : ends_) close(fd);
  }

  const std::string& address() const { return listeners_.address; }
  void add_next() {
    pollfd watched{.fd = listeners_.sockets.front().get(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(poll(&watched, 1, static_cast<int>(milliseconds(kTestLimit).count())), 1);
    relay_->add(accept4(watched.fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  }
  RawClient connect() {
    RawClient client(address());
    add_next();
    return client;
  }
  /// The next connection that is handed over.
  LibraryEnd library_end() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kTestLimit, [this] { return !ends_.empty(); }))
      throw std::runtime_error("no connection was handed over");
    const int fd = ends_.front();
    ends_.erase(ends_.begin());
    return LibraryEnd(fd);
  }
  std::size_t num_waiting_ends() {
    const std::scoped_lock lock(mutex_);
    return ends_.size();
  }

  ClientRelay::Rules rules_{
      .max_header_block_bytes = kMostHeaderBytes, .handshake_timeout = kTestLimit, .write_timeout = kTestLimit};
  Listeners listeners_ = open_listeners("test", "127.0.0.1:0");
  std::mutex mutex_;  // guards the two below
  std::vector<int> ends_;
  std::condition_variable changed_;
  std::optional<ClientRelay> relay_;
};

TEST_F(ClientRelayTest, PassesOnWhatEitherSideSends) {
  start();
  RawClient client = connect();
  const std::string up = greeting() + frame(test::kDataFrame, kNoFlags, std::string(100'000, 'u')), down(1'000'000, 'd');
  std::thread sender([&] { EXPECT_TRUE(client.send(up)); });
  LibraryEnd end = library_end();
  EXPECT_EQ(end.read(up.size()), up);
  sender.join();
  std::thread writer([&] {
    EXPECT_TRUE(end.write(down));
    end.close();
  });
  EXPECT_EQ(client.read_all(), down);
  writer.join();
}

TEST_F(ClientRelayTest, EachOpenConnectionHasANameOfItsOwn) {
  start();
  std::vector<RawClient> clients;
  std::vector<LibraryEnd> ends;
  std::set<std::string> names;
  for (int i = 0; i < 5; ++i) {
    clients.push_back(connect());
    clients.back().send(greeting());
    ends.push_back(library_end());
    names.insert(ends.back().peer());
  }
  EXPECT_EQ(names.size(), ends.size());
  EXPECT_FALSE(names.contains(""));
}

TEST_F(ClientRelayTest, ABlockWithoutAnEndReachesNobody) {
  start();
  RawClient client = connect();
  const std::string good = greeting() + frame(kHeadersFrame, kEndHeaders, std::string(kMostHeaderBytes / 2, 'h'));
  client.send(good);
  LibraryEnd end = library_end();
  EXPECT_EQ(end.read(good.size()), good) << "a stranger can send a good block first";
  client.send(frame(kHeadersFrame, kNoFlags, std::string(kMostHeaderBytes / 2, 'h')));
  while (client.send(frame(kContinuationFrame, kNoFlags, std::string(100, 'h')))) {
  }
  EXPECT_LE(end.read(1'000'000).size(), kMostHeaderBytes);
  RawClient next = connect();
  next.send(greeting());
  EXPECT_EQ(library_end().read(greeting().size()), greeting());
}

TEST_F(ClientRelayTest, WhoDoesNotSpeakHttp2ReachesNobody) {
  start();
  RawClient client = connect();
  client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.read_all(), "");
  EXPECT_EQ(num_waiting_ends(), 0);
}

TEST_F(ClientRelayTest, WhoSaysNothingIsClosed) {
  rules_.handshake_timeout = milliseconds(20);
  start();
  RawClient silent = connect(), slow = connect();
  slow.send("PRI * HTTP");
  EXPECT_EQ(silent.read_all(), "");
  EXPECT_EQ(slow.read_all(), "");
  EXPECT_EQ(num_waiting_ends(), 0);
}

TEST_F(ClientRelayTest, WhoReadsNothingIsClosed) {
  rules_.write_timeout = milliseconds(20);
  start();
  RawClient client = connect();
  client.send(greeting());
  LibraryEnd end = library_end();
  const std::string piece(100'000, 'd');
  while (end.write(piece)) {
  }
  EXPECT_EQ(end.read(1'000'000), greeting());
}

TEST_F(ClientRelayTest, TheLibraryHearsOfAClientThatLeaves) {
  start();
  RawClient client = connect();
  client.send(greeting());
  LibraryEnd end = library_end();
  EXPECT_EQ(end.read(greeting().size()), greeting());
  client.leave();
  EXPECT_EQ(end.read_some(), "");
}

TEST_F(ClientRelayTest, LastWordsReachTheClientBeforeItEnds) {
  start();
  RawClient client = connect();
  client.send(greeting());
  LibraryEnd end = library_end();
  const std::string last(300'000, 'g');
  std::thread library([&] {
    EXPECT_TRUE(end.write(last));
    end.close();
    relay_->take_no_more();
    relay_->stop(kTestLimit);
  });
  EXPECT_EQ(client.read_all(), last);
  library.join();
}

TEST_F(ClientRelayTest, NobodyComesThroughOnceNoneAreTaken) {
  start();
  RawClient early = connect();
  relay_->take_no_more();
  EXPECT_EQ(early.read_all(), "");
  RawClient late = connect();
  late.send(greeting());
  EXPECT_EQ(late.read_all(), "");
  EXPECT_EQ(num_waiting_ends(), 0);
}

/// A client of TLS that offers `protocols`, in the form of ALPN.
class AlpnClient {
 public:
  explicit AlpnClient(const std::string& protocols) {
    SSL_set_alpn_protos(stream_.native_handle(), reinterpret_cast<const unsigned char*>(protocols.data()),
                        static_cast<unsigned>(protocols.size()));
  }
  void connect(const std::string& address) {
    stream_.lowest_layer().connect({net::ip::make_address("127.0.0.1"), static_cast<uint16_t>(std::stoi(address.substr(10)))});
  }
  bool shake_hands() {
    boost::system::error_code error;
    stream_.handshake(net::ssl::stream_base::client, error);
    return !error;
  }
  std::string chosen() {
    const unsigned char* name = nullptr;
    unsigned size = 0;
    SSL_get0_alpn_selected(stream_.native_handle(), &name, &size);
    return {reinterpret_cast<const char*>(name), size};
  }
  void send(const std::string& bytes) { net::write(stream_, net::buffer(bytes)); }
  std::string read(std::size_t size) {
    std::string bytes(size, '\0');
    net::read(stream_, net::buffer(bytes));
    return bytes;
  }

 private:
  net::io_context io_;
  net::ssl::context context_{net::ssl::context::tls_client};
  net::ssl::stream<net::ip::tcp::socket> stream_{io_, context_};
};

TEST_F(ClientRelayTest, EndsTls) {
  const test::Certificate own = test::make_certificate("localhost");
  start(TlsIdentity{.certificate_chain = own.certificate, .private_key = own.key, .client_ca = ""});
  AlpnClient client("\x08http/1.1\x02h2");
  client.connect(address());
  add_next();
  ASSERT_TRUE(client.shake_hands());
  EXPECT_EQ(client.chosen(), "h2");
  client.send(greeting());
  LibraryEnd end = library_end();
  EXPECT_EQ(end.read(greeting().size()), greeting());
  EXPECT_TRUE(end.write("answer"));
  EXPECT_EQ(client.read(6), "answer");
  AlpnClient other("\x08http/1.1");
  other.connect(address());
  add_next();
  EXPECT_FALSE(other.shake_hands()) << "there is no HTTP/1.1 here";
  RawClient plain = connect();
  plain.send(greeting());
  plain.read_all();
  EXPECT_EQ(num_waiting_ends(), 0);
}

}  // namespace
}  // namespace ferry

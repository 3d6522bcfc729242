#include "runtime/server/http2/client_relay.h"

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/write.hpp>
#include <condition_variable>
#include <exception>
#include <list>
#include <mutex>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/base/file_descriptor.h"
#include "runtime/server/http/client_socket.h"
#include "runtime/server/http/tls_context.h"
#include "runtime/server/http2/header_bound.h"
#include "runtime/server/http2/socket_pair.h"

namespace ferry {
namespace {

namespace net = boost::asio;
using boost::system::error_code;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using tcp = net::ip::tcp;
using TlsStream = net::ssl::stream<tcp::socket>;

constexpr std::size_t kPieceBytes = 16 << 10;  // in each direction, of what has been read and not yet passed on
constexpr milliseconds kRetryPeriod{100};      // for descriptors to become free
constexpr int kThreads = 2;                    // a handshake of one client then holds up only half of the others

/// Chooses HTTP/2, the only protocol here, where a client names it (RFC 7301). A client that names none gets it as well.
int choose_http2(SSL*, const unsigned char** chosen, unsigned char* length, const unsigned char* offered, unsigned num_offered,
                 void*) {
  constexpr std::string_view kHttp2 = "\x02h2";
  unsigned char* found = nullptr;
  const int result = SSL_select_next_proto(&found, length, reinterpret_cast<const unsigned char*>(kHttp2.data()),
                                           static_cast<unsigned>(kHttp2.size()), offered, num_offered);
  *chosen = found;
  return result == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

std::optional<net::ssl::context> make_context(const std::optional<TlsIdentity>& tls) {
  if (!tls) return std::nullopt;
  net::ssl::context context = make_tls_context(*tls);
  SSL_CTX_set_alpn_select_cb(context.native_handle(), &choose_http2, nullptr);
  return context;
}

/// A client that is served.
class RelayedClient {
 public:
  virtual ~RelayedClient() = default;
  /// Closes its sockets soon: in any case, or if it is not with the library yet. Any thread may call them.
  virtual void close_soon() = 0;
  virtual void close_soon_if_new() = 0;
};

/// Lists the clients, and holds what they share with the relay. It outlives them. Any thread may call any method.
class ClientTable {
 public:
  using Entry = std::list<std::weak_ptr<RelayedClient>>::iterator;

  ClientTable(const ClientRelay::Rules& given, ClientRelay::Taker take) : rules(given), take_(std::move(take)) {}
  ClientTable(const ClientTable&) = delete;
  ClientTable& operator=(const ClientTable&) = delete;

  const ClientRelay::Rules rules;

  Entry add(std::weak_ptr<RelayedClient> client) {
    const std::scoped_lock lock(mutex_);
    return clients_.insert(clients_.end(), std::move(client));
  }
  void remove(Entry entry) {
    const std::scoped_lock lock(mutex_);
    clients_.erase(entry);
    removed_.notify_all();
  }
  /// False if nothing is handed over any more.
  bool hand_over(FileDescriptor end) {
    const std::scoped_lock lock(take_mutex_);
    if (is_taking_) take_(end.release());
    return is_taking_;
  }
  void take_no_more() {
    const std::scoped_lock lock(take_mutex_);
    is_taking_ = false;
  }
  bool wait_until_empty(milliseconds limit) {
    std::unique_lock lock(mutex_);
    return removed_.wait_for(lock, limit, [this] { return clients_.empty(); });
  }
  void for_each(void (RelayedClient::*method)()) {
    std::vector<std::shared_ptr<RelayedClient>> clients;  // which may go with this list, so not under the mutex
    {
      const std::scoped_lock lock(mutex_);
      for (const std::weak_ptr<RelayedClient>& each : clients_) clients.push_back(each.lock());
    }
    for (const std::shared_ptr<RelayedClient>& client : clients) {
      if (client != nullptr) (client.get()->*method)();
    }
  }

 private:
  std::mutex take_mutex_;  // guards the next two
  const ClientRelay::Taker take_;
  bool is_taking_ = true;
  std::mutex mutex_;  // guards the next two
  std::list<std::weak_ptr<RelayedClient>> clients_;
  std::condition_variable removed_;
};

/// Stream is tcp::socket or TlsStream. Everything but the constructor, start() and close_soon() runs on the client's strand.
template <class Stream>
class Client final : public RelayedClient, public std::enable_shared_from_this<Client<Stream>> {
 public:
  template <class... Arguments>
  explicit Client(ClientTable& table, tcp::socket socket, Arguments&... arguments)
      : table_(table),
        bound_(table.rules.max_header_block_bytes),
        stream_(std::move(socket), arguments...),
        library_(stream_.get_executor()),
        timer_(stream_.get_executor()) {}
  ~Client() override {
    if (is_in_table_) table_.remove(entry_);
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void start() {
    entry_ = table_.add(this->weak_from_this());
    is_in_table_ = true;
    net::post(stream_.get_executor(), [self = this->shared_from_this()] { self->guarded([&] { self->await_client(); }); });
  }

  void close_soon() override {
    net::post(stream_.get_executor(), [self = this->shared_from_this()] { self->close(); });
  }
  void close_soon_if_new() override {
    net::post(stream_.get_executor(), [self = this->shared_from_this()] {
      if (!self->is_handed_over_) self->close();
    });
  }

 private:
  tcp::socket& client_socket() {
    if constexpr (std::is_same_v<Stream, tcp::socket>)
      return stream_;
    else
      return stream_.next_layer();
  }

  void close() {
    is_closed_ = true;
    error_code ignored;
    client_socket().close(ignored);
    library_.close(ignored);
    timer_.cancel();
  }

  /// Memory may run out in `step`: that ends this connection alone.
  template <class Step>
  void guarded(Step&& step) {
    if (is_closed_) return;
    try {
      step();
    } catch (const std::exception&) {
      close();
    }
  }

  /// `method` as a completion handler that keeps this alive and is not called once the connection is closed.
  template <class... Rest>
  auto bind(void (Client::*method)(error_code, Rest...)) {
    return [self = this->shared_from_this(), method](error_code error, Rest... rest) {
      self->guarded([&] { (self.get()->*method)(error, rest...); });
    };
  }

  // Until the client speaks HTTP/2.

  void await_client() {
    timer_.expires_after(table_.rules.handshake_timeout);
    timer_.async_wait(bind(&Client::on_handshake_timeout));
    if constexpr (std::is_same_v<Stream, tcp::socket>)
      read_preface();
    else
      stream_.async_handshake(net::ssl::stream_base::server, bind(&Client::on_handshake));
  }

  void on_handshake_timeout(error_code error) {
    if (!error && !is_handed_over_) close();
  }

  void on_handshake(error_code error) {
    if (error) return close();
    read_preface();
  }

  void read_preface() { stream_.async_read_some(net::buffer(up_) + num_up_bytes_, bind(&Client::on_preface)); }

  void on_preface(error_code error, std::size_t num_bytes) {
    if (error || !bound_.take({&up_[num_up_bytes_], num_bytes})) return close();
    num_up_bytes_ += num_bytes;
    if (!bound_.has_begun()) return read_preface();
    hand_over();
  }

  void hand_over() {
    std::optional<SocketPair> pair = make_socket_pair();
    if (!pair) return hand_over_later();
    library_.assign(net::local::stream_protocol(), pair->named.get());
    pair->named.release();
    if (!table_.hand_over(std::move(pair->other))) return close();
    is_handed_over_ = true;
    watch_writes();
    write_up();
    read_down();
  }

  /// The handshake's deadline holds on.
  void hand_over_later() {
    const auto retry = std::make_shared<net::steady_timer>(stream_.get_executor(), kRetryPeriod);
    retry->async_wait([self = this->shared_from_this(), retry](error_code) { self->guarded([&] { self->hand_over(); }); });
  }

  // From the client to the library.

  void read_up() { stream_.async_read_some(net::buffer(up_), bind(&Client::on_up)); }

  void on_up(error_code error, std::size_t num_bytes) {
    if (error || !bound_.take({up_.data(), num_bytes})) return close();
    num_up_bytes_ = num_bytes;
    write_up();
  }

  void write_up() { net::async_write(library_, net::buffer(up_, num_up_bytes_), bind(&Client::on_up_written)); }

  /// After an error the library has closed its end: read_down() passes on what it wrote before, and then closes.
  void on_up_written(error_code error, std::size_t) {
    if (!error) read_up();
  }

  // From the library to the client.

  void read_down() { library_.async_read_some(net::buffer(down_), bind(&Client::on_down)); }

  void on_down(error_code error, std::size_t num_bytes) {
    if (error) return close();
    write_begin_ = steady_clock::now();
    net::async_write(stream_, net::buffer(down_, num_bytes), bind(&Client::on_down_written));
  }

  void on_down_written(error_code error, std::size_t) {
    if (error) return close();
    write_begin_.reset();
    read_down();
  }

  /// One timer, which is set again only when it has run out, looks for a write that takes too long.
  void watch_writes() {
    timer_.expires_at(write_begin_.value_or(steady_clock::now()) + table_.rules.write_timeout);
    timer_.async_wait(bind(&Client::on_watch));
  }

  void on_watch(error_code error) {
    if (error) return;
    if (write_begin_ && steady_clock::now() >= *write_begin_ + table_.rules.write_timeout) return close();
    watch_writes();
  }

  ClientTable& table_;
  ClientTable::Entry entry_;
  bool is_in_table_ = false;
  HeaderBound bound_;
  Stream stream_;  // the client's
  net::local::stream_protocol::socket library_;
  net::steady_timer timer_;  // of the handshake, then of writes
  std::array<uint8_t, kPieceBytes> up_;
  std::size_t num_up_bytes_ = 0;
  std::array<uint8_t, kPieceBytes> down_;
  std::optional<steady_clock::time_point> write_begin_;  // while something is written to the client
  bool is_handed_over_ = false;
  bool is_closed_ = false;
};

}  // namespace

class ClientRelay::Impl {
 public:
  Impl(const Rules& rules, const std::optional<TlsIdentity>& tls, Taker take)
      : tls_(make_context(tls)), table_(rules, std::move(take)), work_(io_.get_executor()) {
    for (int t = 0; t < kThreads; ++t) threads_.emplace_back([this] { run(); });
  }
  ~Impl() { stop(milliseconds(0)); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// Closes the client if memory has run out.
  void add(FileDescriptor fd) {
    try {
      start(std::move(fd));
    } catch (const std::exception&) {
      return;
    }
  }

  void take_no_more() {
    table_.take_no_more();
    table_.for_each(&RelayedClient::close_soon_if_new);
  }

  void stop(milliseconds limit) {
    take_no_more();
    if (threads_.empty()) return;
    if (!table_.wait_until_empty(limit)) table_.for_each(&RelayedClient::close_soon);
    work_.reset();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  void start(FileDescriptor fd) {
    set_client_options(fd.get(), std::chrono::duration<double>(table_.rules.write_timeout).count());
    tcp::socket socket(net::make_strand(io_));
    socket.assign(tcp::v4(), fd.get());  // the protocol matters only to what opens sockets
    fd.release();
    if (tls_)
      std::make_shared<Client<TlsStream>>(table_, std::move(socket), *tls_)->start();
    else
      std::make_shared<Client<tcp::socket>>(table_, std::move(socket))->start();
  }

  void run() {
    while (true) {
      try {
        io_.run();
        return;
      } catch (const std::exception&) {
        // Memory ran out before a handler could be called. The other clients are served on.
      }
    }
  }

  std::optional<net::ssl::context> tls_;
  ClientTable table_;
  net::io_context io_{kThreads};
  net::executor_work_guard<net::io_context::executor_type> work_;
  std::vector<std::thread> threads_;
};

ClientRelay::ClientRelay(const Rules& rules, const std::optional<TlsIdentity>& tls, Taker take)
    : impl_(std::make_unique<Impl>(rules, tls, std::move(take))) {}
ClientRelay::~ClientRelay() = default;
void ClientRelay::add(int fd) { impl_->add(FileDescriptor(fd)); }
void ClientRelay::take_no_more() { impl_->take_no_more(); }
void ClientRelay::stop(milliseconds limit) { impl_->stop(limit); }

}  // namespace ferry

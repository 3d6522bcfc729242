#include "runtime/server/http/http_client.h"

#include <array>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <exception>
#include <limits>
#include <list>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/base/lower_case.h"
#include "runtime/net/host_port.h"
#include "runtime/server/http/boost_names.h"
#include "runtime/server/http/client_socket.h"

namespace ferry {
namespace {

constexpr std::size_t kPieceBytes = 16 << 10;            // of an answer's body at a time
constexpr std::uint32_t kHeadBytesMax = 64 << 10;        // of an answer
constexpr int kInterimMax = 8;                           // answers with a status of 1xx, which are passed over
constexpr std::chrono::milliseconds kPause{2};           // between looks at a hearer that is full
constexpr std::chrono::milliseconds kNoMemoryPause{20};  // after the I/O thread found no memory
constexpr std::chrono::seconds kLastWords{2};            // for an answer of whoever does not take the whole question

/// "10.0.0.5:8000", as a Host header has it: the address is a name that every server has.
std::string host_of(const tcp::endpoint& endpoint) {
  const std::string address = endpoint.address().to_string();
  return (endpoint.address().is_v6() ? "[" + address + "]" : address) + ":" + std::to_string(endpoint.port());
}

/// One question and its answer. It owns itself while something is pending. Used by the I/O thread, but for cancel().
class Exchange final : public HttpExchange, public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(net::io_context& io, HttpQuestion question, std::shared_ptr<ExchangeHearer> hearer)
      : question_(std::move(question)),
        hearer_(std::move(hearer)),
        place_(parse_host_port("coordinator", question_.address)),
        resolver_(io),
        stream_(io),
        pause_(io),
        buffer_(kHeadBytesMax + kPieceBytes) {}

  void start() { find_host(); }
  void cancel() override {
    net::post(stream_.get_executor(), [self = shared_from_this()] { self->end(ExchangeEnd::kCancelled, "it was cancelled"); });
  }

 private:
  /// `method` as a completion handler that keeps this alive and is not called once the exchange has ended. Where it throws
  /// (memory may run out) nothing may be pending that would go on, so it ends.
  template <class... Rest>
  auto bind(void (Exchange::*method)(error_code, Rest...)) {
    return [self = shared_from_this(), method](error_code error, Rest... rest) {
      if (self->hearer_ == nullptr) return;
      try {
        (self.get()->*method)(error, rest...);
      } catch (const std::exception& failure) {
        self->fail(failure.what());
      }
    };
  }

  void find_host() {
    error_code is_name;
    const net::ip::address address = net::ip::make_address(without_brackets(place_.host), is_name);
    const tcp::endpoint endpoint(address, static_cast<std::uint16_t>(place_.port));
    if (!is_name) return on_resolved({}, tcp::resolver::results_type::create(endpoint, place_.host, ""));
    // A look-up has no deadline of its own; the timer ends the exchange, and the look-up ends by itself. All of them are one
    // thread's, so that a name that cannot be looked up holds up other names, but no addresses.
    pause_.expires_after(nanoseconds_of(question_.connect_s));
    pause_.async_wait([self = shared_from_this()](error_code error) {
      if (!error) self->end(ExchangeEnd::kUnreachable, "the host was not found in time");
    });
    resolver_.async_resolve(without_brackets(place_.host), std::to_string(place_.port), tcp::resolver::numeric_service,
                            bind(&Exchange::on_resolved));
  }

  void on_resolved(error_code error, tcp::resolver::results_type places) {
    pause_.cancel();
    if (error) return fail(error.message());
    stream_.expires_after(nanoseconds_of(question_.connect_s));
    stream_.async_connect(places, bind(&Exchange::on_connected));
  }

  void on_connected(error_code error, tcp::endpoint endpoint) {
    if (error) return fail(error.message());
    set_client_options(stream_.socket().native_handle(), question_.write_s);
    write_head(endpoint);
    stream_.expires_after(nanoseconds_of(question_.write_s));
    const std::array<net::const_buffer, 2> parts = {net::buffer(head_),
                                                    question_.body ? net::buffer(*question_.body) : net::const_buffer()};
    net::async_write(stream_, parts, bind(&Exchange::on_written));
  }

  void write_head(const tcp::endpoint& endpoint) {
    head_ = question_.method + " " + question_.path + " HTTP/1.1\r\nHost: " + host_of(endpoint) + "\r\nConnection: close\r\n";
    for (const auto& [name, value] : question_.headers) head_.append(name).append(": ").append(value).append("\r\n");
    if (question_.body) head_ += "Content-Length: " + std::to_string(question_.body->size()) + "\r\n";
    head_ += "\r\n";
  }

  /// A server that refuses a question may answer before it has taken all of it.
  void on_written(error_code error, std::size_t) {
    question_.body.reset();
    if (error) {
      stream_.expires_after(kLastWords);
    } else {
      stream_.expires_never();
    }
    read_header();
  }

  void read_header() {
    parser_.emplace();
    parser_->header_limit(kHeadBytesMax);
    parser_->body_limit(std::numeric_limits<std::int64_t>::max());  // it is passed on piece by piece
    http::async_read_header(stream_, buffer_, *parser_, bind(&Exchange::on_header));
  }

  void on_header(error_code error, std::size_t) {
    if (error) return fail(error == http::error::end_of_stream ? "the connection was closed" : error.message());
    const auto status = static_cast<int>(parser_->get().result_int());
    if (status == 101) return fail("it answers 101, for which it was not asked");
    if (status < 200) {
      if (++num_interim_ > kInterimMax) return fail("it sent more than " + std::to_string(kInterimMax) + " interim answers");
      return read_header();
    }
    HttpAnswerHead head{.status = status};
    for (const auto& field : parser_->get())
      head.headers.emplace_back(lower_case(std::string(field.name_string())), std::string(field.value()));
    if (const auto length = parser_->content_length()) head.length = static_cast<int64_t>(*length);
    has_head_ = true;
    hearer_->on_head(std::move(head));
    read_on();
  }

  void read_on() {
    if (hearer_ == nullptr) return;
    if (parser_->is_done()) return end(ExchangeEnd::kWhole, "");
    if (hearer_->is_full()) {
      pause_.expires_after(kPause);
      return pause_.async_wait(bind(&Exchange::on_pause));
    }
    parser_->get().body().data = piece_.data();
    parser_->get().body().size = piece_.size();
    http::async_read_some(stream_, buffer_, *parser_, bind(&Exchange::on_piece));
  }

  void on_pause(error_code) { read_on(); }

  void on_piece(error_code error, std::size_t) {
    const std::size_t num_bytes = piece_.size() - parser_->get().body().size;
    if (num_bytes > 0) hearer_->on_piece({piece_.data(), num_bytes});
    if (hearer_ == nullptr) return;
    if (error && error != http::error::need_buffer) return fail(error.message());
    read_on();
  }

  void fail(const std::string& reason) { end(has_head_ ? ExchangeEnd::kBroken : ExchangeEnd::kUnreachable, reason); }

  void end(ExchangeEnd end, const std::string& reason) {
    const auto hearer = std::exchange(hearer_, nullptr);
    if (hearer == nullptr) return;
    resolver_.cancel();
    pause_.cancel();
    stream_.close();
    try {
      hearer->on_end(end, reason);
    } catch (const std::exception&) {  // no memory to tell: whoever waits hears when the hearer goes
    }
  }

  HttpQuestion question_;
  std::shared_ptr<ExchangeHearer> hearer_;  // null once the exchange has ended
  const HostPort place_;
  tcp::resolver resolver_;
  beast::tcp_stream stream_;
  net::steady_timer pause_;  // of a look-up, then between looks at a full hearer
  beast::flat_buffer buffer_;
  std::string head_;
  std::optional<http::response_parser<http::buffer_body>> parser_;
  std::array<char, kPieceBytes> piece_{};
  bool has_head_ = false;
  int num_interim_ = 0;  // answers so far
};

}  // namespace

class HttpClient::Impl {
 public:
  Impl() : thread_([this] { run(); }) {}
  ~Impl() {
    net::post(io_, [this] {
      for (const std::weak_ptr<Exchange>& each : exchanges_) {
        if (const auto exchange = each.lock()) exchange->cancel();
      }
      stay_.reset();
    });
    thread_.join();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::shared_ptr<HttpExchange> start(HttpQuestion question, std::shared_ptr<ExchangeHearer> hearer) {
    auto exchange = std::make_shared<Exchange>(io_, std::move(question), std::move(hearer));
    net::post(io_, [this, exchange] {
      exchanges_.remove_if([](const std::weak_ptr<Exchange>& each) { return each.expired(); });
      exchanges_.push_back(exchange);
      exchange->start();
    });
    return exchange;
  }

 private:
  void run() {
    while (true) {
      try {
        io_.run();
        return;
      } catch (const std::exception&) {
        std::this_thread::sleep_for(kNoMemoryPause);
      }
    }
  }

  net::io_context io_{1};
  net::executor_work_guard<net::io_context::executor_type> stay_{io_.get_executor()};
  std::list<std::weak_ptr<Exchange>> exchanges_;  // of the I/O thread; may hold some that are gone
  std::thread thread_;
};

HttpClient::HttpClient() : impl_(std::make_unique<Impl>()) {}
HttpClient::~HttpClient() = default;
std::shared_ptr<HttpExchange> HttpClient::start(HttpQuestion question, std::shared_ptr<ExchangeHearer> hearer) {
  return impl_->start(std::move(question), std::move(hearer));
}

}  // namespace ferry

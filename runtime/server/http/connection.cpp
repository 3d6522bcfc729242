#include "runtime/server/http/connection.h"

#include <algorithm>
#include <array>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/ssl.hpp>
#include <chrono>
#include <exception>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "runtime/server/http/boost_names.h"
#include "runtime/server/http/call.h"
#include "runtime/server/http/client_socket.h"
#include "runtime/server/http/request_head.h"
#include "runtime/server/log/request_note.h"

namespace ferry {
namespace {

constexpr std::size_t kFirstRead = 4096;                    // bytes asked for while idle
constexpr std::size_t kBodyPiece = 16 << 10;                // bytes of a body at a time
constexpr std::chrono::seconds kLinger{2};                  // for a refused client to read why, and for TLS's farewell
constexpr std::size_t kLingerBytes = std::size_t{1} << 20;  // of a refused body that are read and thrown away meanwhile
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

/// What a request that cannot be read is answered; nothing where the client is gone or too slow.
std::optional<HttpResponse> answer_to(const error_code& error, const ServerLimits& limits) {
  if (error == http::error::body_limit)
    return http_error(413, "the body is too long; allowed: " + std::to_string(limits.http_body_bytes) + " bytes");
  if (error == http::error::header_limit || error == http::error::buffer_overflow)
    return http_error(431, "the headers are too long; allowed: " + std::to_string(limits.http_header_bytes) + " bytes");
  const bool is_bad = error.category() == make_error_code(http::error::bad_method).category() &&
                      error != http::error::end_of_stream && error != http::error::partial_message;
  return is_bad ? std::optional(http_error(400, "this is no HTTP request: " + error.message())) : std::nullopt;
}

/// "10.0.0.5" also where it is mapped into IPv6.
std::string local_address_of(const tcp::socket& socket) {
  error_code error;
  const tcp::endpoint endpoint = socket.local_endpoint(error);
  if (error) return "";
  const net::ip::address address = endpoint.address();
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    return net::ip::make_address_v4(net::ip::v4_mapped, address.to_v6()).to_string();
  return address.to_string();
}

/// Status line and headers of an answer that this server gives with `headers` and, unless it is empty, `content_type`.
template <class Body>
http::response<Body> make_response(int status, const std::string& content_type, const HttpHeaders& headers) {
  constexpr unsigned kHttp11 = 11;
  http::response<Body> response(static_cast<http::status>(status), kHttp11);
  if (!content_type.empty()) response.set(http::field::content_type, content_type);
  for (const auto& [name, value] : headers) response.set(name, value);
  return response;
}

/// Stream is a beast::tcp_stream, or one of TLS around it. Handlers run on the I/O thread.
template <class Stream>
class Connection final : public HttpConnection, public std::enable_shared_from_this<Connection<Stream>> {
 public:
  static constexpr bool kIsTls = !std::is_same_v<Stream, beast::tcp_stream>;

  template <class... Arguments>
  explicit Connection(HttpShared& shared, tcp::socket socket, Arguments&... arguments)
      : shared_(shared),
        local_address_(local_address_of(socket)),
        stream_(std::move(socket), arguments...),
        silence_(stream_.get_executor()),
        buffer_(static_cast<std::size_t>(shared.limits.http_header_bytes) + kBodyPiece) {}

  void start() {
    entry_ = shared_.table.add(this->weak_from_this());
    guarded([this] { wait_for_client(); });
  }

  void close() override {
    if (!entry_) return;
    shared_.table.remove(*entry_);
    entry_.reset();
    give_body_bytes();
    tcp_stream().close();
    end_call(HttpEnd::kGone);
  }

 private:
  using SteadyClock = std::chrono::steady_clock;

  beast::tcp_stream& tcp_stream() { return beast::get_lowest_layer(stream_); }
  void set_deadline(double seconds) { tcp_stream().expires_after(nanoseconds_of(seconds)); }

  /// Runs `step` unless the connection is closed. Where it throws (memory may run out) nothing may be pending that would go on,
  /// so the connection is closed, and all others stay.
  template <class Step>
  void guarded(Step&& step) {
    if (!entry_) return;
    try {
      step();
    } catch (const std::exception&) {
      close();
    }
  }

  /// `method` as a completion handler that keeps this alive and is not called once the connection is closed.
  template <class... Rest>
  auto bind(void (Connection::*method)(error_code, Rest...)) {
    return [self = this->shared_from_this(), method](error_code error, Rest... rest) {
      self->guarded([&] { (self.get()->*method)(error, rest...); });
    };
  }

  void wait_for_client() {
    if constexpr (kIsTls) {
      shared_.table.set_phase(*entry_, ConnectionPhase::kHeader);
      set_deadline(shared_.limits.http_header_s);
      stream_.async_handshake(net::ssl::stream_base::server, bind(&Connection::on_handshake));
    } else {
      wait_for_request(shared_.limits.http_header_s);
    }
  }

  void on_handshake(error_code error) {
    if (error) return close();
    wait_for_request(shared_.limits.http_header_s);
  }

  void wait_for_request(double seconds) {
    if (shared_.is_stopping) return close();
    if (buffer_.size() > 0) return read_header();
    shared_.table.set_phase(*entry_, ConnectionPhase::kIdle);
    set_deadline(seconds);
    stream_.async_read_some(buffer_.prepare(kFirstRead), bind(&Connection::on_first_bytes));
  }

  void on_first_bytes(error_code error, std::size_t num_bytes) {
    if (error) return close();
    buffer_.commit(num_bytes);
    read_header();
  }

  void read_header() {
    shared_.table.set_phase(*entry_, ConnectionPhase::kHeader);
    set_deadline(shared_.limits.http_header_s);
    parser_.emplace();
    set_limits(*parser_, shared_.limits);
    http::async_read_header(stream_, buffer_, *parser_, bind(&Connection::on_header));
  }

  void on_header(error_code error, std::size_t) {
    begin_ = SteadyClock::now();
    if (error == http::error::body_limit) asked_ = route_ = shared_.gate.route_of(read_target(*parser_));
    if (error) return refuse_unread(answer_to(error, shared_.limits));
    is_head_ = parser_->get().method() == http::verb::head;
    keep_alive_ = parser_->get().keep_alive();
    if (std::optional<HttpResponse> refusal = check_head(*parser_, shared_.limits)) return refuse_unread(std::move(refusal));
    request_ = read_head(*parser_, local_address_);
    HttpGate::Verdict verdict = shared_.gate.judge(request_);
    gate_headers_ = std::move(verdict.headers);
    route_ = verdict.route;
    asked_ = verdict.asked;
    caller_ = verdict.caller;
    if (verdict.answer) {
      if (parser_->is_done()) return write(std::move(*verdict.answer));
      return refuse_unread(std::move(verdict.answer));
    }
    request_.caller = caller_;
    if (parser_->is_done()) return answer();
    read_body();
  }

  void read_body() {
    shared_.table.set_phase(*entry_, ConnectionPhase::kBody);
    set_deadline(shared_.limits.http_body_s);
    const bool is_asked = beast::iequals(parser_->get()[http::field::expect], "100-continue");
    if (!is_asked) return read_piece();
    net::async_write(stream_, net::buffer(kContinue.data(), kContinue.size()), bind(&Connection::on_continue));
  }

  void on_continue(error_code error, std::size_t) {
    if (error) return close();
    read_piece();
  }

  void read_piece() {
    auto& body = parser_->get().body();
    body.data = piece_.data();
    body.size = piece_.size();
    http::async_read(stream_, buffer_, *parser_, bind(&Connection::on_piece));
  }

  void on_piece(error_code error, std::size_t) {
    if (error && error != http::error::need_buffer) return refuse_unread(answer_to(error, shared_.limits));
    const std::size_t num_bytes = piece_.size() - parser_->get().body().size;
    if (!shared_.table.take_body_bytes(static_cast<int64_t>(num_bytes), *entry_))
      return refuse_unread(http_error(503, "too many bodies at once; try again"));
    body_bytes_ += static_cast<int64_t>(num_bytes);
    request_.body.append(piece_.data(), num_bytes);
    if (parser_->is_done()) return answer();
    read_piece();
  }

  void answer() {
    shared_.table.set_phase(*entry_, ConnectionPhase::kAnswer);
    tcp_stream().expires_never();
    is_chunked_ = parser_->get().version() >= 11;
    last_sent_ = SteadyClock::now();
    const HttpCallForm form{
        .is_chunked = is_chunked_, .has_body = !is_head_, .max_waiting_bytes = shared_.limits.http_stream_bytes};
    const auto look = [self = this->shared_from_this()] { self->guarded([&] { self->look_at_call(); }); };
    call_ = std::make_shared<HttpCall>(form, [executor = tcp_stream().get_executor(), look] { net::post(executor, look); });
    if (shared_.observe) request_.note = note_ = std::make_shared<RequestNote>();
    shared_.dispatch(*route_, std::move(request_), HttpReply(call_));
  }

  /// Does what there is to do for the call, unless something is being sent; then it is done after that.
  void look_at_call() {
    if (call_ == nullptr || is_writing_) return;
    HttpCall::News news = call_->take(bytes_);
    const bool has_to_wait = news.cut == HttpEnd::kGone && !bytes_.empty();  // for what the handler wrote before it let go
    if (news.cut && !has_to_wait) return end_and_close(*news.cut);
    if (news.is_watched) watch();
    if (news.response) return write(std::move(*news.response));
    if (news.head) begin_stream(*news.head);
    keep_alive_s_ = news.keep_alive_s;
    is_last_ = news.is_last;
    if (is_last_) shared_.table.set_phase(*entry_, ConnectionPhase::kSend);
    if (!bytes_.empty() || is_last_) return send_bytes();
    listen_to_silence();
  }

  /// Puts the head in front of the first bytes.
  void begin_stream(const HttpStreamHead& head) {
    give_body_bytes();  // the handler has got from it what it needs
    status_ = head.status;
    is_events_ = head.content_type.starts_with("text/event-stream");
    keep_alive_ = keep_alive_ && is_chunked_ && !shared_.is_stopping;
    auto response = make_response<http::empty_body>(head.status, head.content_type, head.headers);
    for (const auto& [name, value] : gate_headers_) response.set(name, value);
    response.keep_alive(keep_alive_);
    response.chunked(is_chunked_);
    std::ostringstream text;
    text << response.base();
    bytes_.insert(0, text.str());
  }

  void send_bytes() {
    is_writing_ = true;
    set_deadline(shared_.limits.http_write_s);
    net::async_write(stream_, net::buffer(bytes_), bind(&Connection::on_sent));
  }

  void on_sent(error_code error, std::size_t) {
    is_writing_ = false;
    last_sent_ = SteadyClock::now();
    if (error) return end_and_close(error == beast::error::timeout ? HttpEnd::kTooSlow : HttpEnd::kGone);
    if (is_last_) return end_answer();
    look_at_call();
  }

  /// Reads what the client sends while it is answered, to notice when it goes. As much as the buffer holds may come ahead; from
  /// a client that sends more nothing is read until it has its answer.
  void watch() {
    if (has_client_ended_) return await_reset();
    const std::size_t room = std::min(buffer_.max_size() - buffer_.size(), kFirstRead);
    if (is_watching_ || room == 0) return;
    is_watching_ = true;
    tcp_stream().expires_never();
    stream_.async_read_some(buffer_.prepare(room), bind(&Connection::on_watched));
  }

  void on_watched(error_code error, std::size_t num_bytes) {
    is_watching_ = false;
    buffer_.commit(num_bytes);
    if (error == net::error::operation_aborted && call_ != nullptr) return;  // on_sent tells which deadline has passed
    if (error == net::error::eof && may_probe()) return outlive_end();
    if (error && error != net::error::operation_aborted) return close();
    if (call_ == nullptr) return go_on();
    watch();
  }

  /// Whether a client that sends nothing more can be told from one that has gone: by interim answers before the head of its own
  /// (RFC 9110 §15.2), by comments in a stream of events.
  bool may_probe() const { return !kIsTls && is_chunked_ && call_ != nullptr && (status_ == 0 || is_events_); }

  /// The client sends nothing more: it has shut down its sending half and waits for its answer, or it has closed the
  /// connection, which looks the same until something is sent to it. The system of one that has closed answers with a reset.
  void outlive_end() {
    has_client_ended_ = true;
    await_reset();
    silence_.cancel();  // which may be shorter from now on
    if (!is_writing_) break_silence();
  }

  /// After the client's end reads tell nothing more.
  void await_reset() {
    if (is_watching_) return;
    is_watching_ = true;
    tcp_stream().socket().async_wait(tcp::socket::wait_error, bind(&Connection::on_reset));
  }

  void on_reset(error_code error) {
    is_watching_ = false;
    if (error == net::error::operation_aborted && call_ != nullptr) return;  // as above
    if (error && call_ == nullptr) return go_on();
    close();
  }

  /// Sends something that does not change what the answer says.
  void break_silence() {
    if (has_client_ended_ && status_ == 0) {
      is_writing_ = true;
      set_deadline(shared_.limits.http_write_s);
      return net::async_write(stream_, net::buffer(kContinue.data(), kContinue.size()), bind(&Connection::on_sent));
    }
    if (keep_alive_s_ > 0 || call_->is_between_events()) call_->keep_alive();
    look_at_call();
  }

  /// Seconds without a byte until there has to be one; 0: none has to be.
  double longest_silence() const {
    const bool is_probed = has_client_ended_ && (status_ == 0 || is_events_);
    if (!is_probed) return keep_alive_s_;
    return keep_alive_s_ > 0 ? std::min(shared_.probe_s, keep_alive_s_) : shared_.probe_s;
  }

  /// Sees to it that silence is noticed: one timer, which is set anew only when it has run out.
  void listen_to_silence() {
    if (longest_silence() <= 0 || is_listening_) return;
    is_listening_ = true;
    silence_.expires_at((is_writing_ ? SteadyClock::now() : last_sent_) + nanoseconds_of(longest_silence()));
    silence_.async_wait(bind(&Connection::on_silence));
  }

  void on_silence(error_code) {
    is_listening_ = false;
    if (call_ == nullptr || longest_silence() <= 0) return;
    if (is_writing_ || SteadyClock::now() < last_sent_ + nanoseconds_of(longest_silence())) return listen_to_silence();
    break_silence();
  }

  /// Answers a request whose rest was not read, and ends the connection. Without an answer it just ends.
  void refuse_unread(std::optional<HttpResponse> response) {
    if (!response) return close();
    if (route_ != nullptr && route_->reword != nullptr) route_->reword(*response);
    is_lingering_ = true;
    write(std::move(*response));
  }

  void write(HttpResponse response) {
    shared_.table.set_phase(*entry_, ConnectionPhase::kSend);
    is_writing_ = true;
    set_deadline(shared_.limits.http_write_s);
    status_ = response.status;
    keep_alive_ = keep_alive_ && !is_lingering_ && !shared_.is_stopping;
    response_.emplace(make_response<http::string_body>(response.status, response.content_type, response.headers));
    for (const auto& [name, value] : gate_headers_) response_->set(name, value);
    response_->keep_alive(keep_alive_);
    response_->content_length(response.body.size());
    if (!is_head_) response_->body() = std::move(response.body);
    http::async_write(stream_, *response_, bind(&Connection::on_written));
  }

  void on_written(error_code error, std::size_t) {
    is_writing_ = false;
    response_.reset();
    if (error) return end_and_close(error == beast::error::timeout ? HttpEnd::kTooSlow : HttpEnd::kGone);
    end_answer();
  }

  void end_and_close(HttpEnd end) {
    end_call(end);
    close();
  }

  void end_answer() {
    give_body_bytes();
    end_call(HttpEnd::kAnswered);
    if (!entry_) return;                             // whoever heard of it may have closed
    if (is_watching_) return tcp_stream().cancel();  // on_watched goes on
    go_on();
  }

  /// After an answer.
  void go_on() {
    if (is_lingering_) return linger();
    if (keep_alive_) return wait_for_request(shared_.limits.http_idle_s);
    say_goodbye();
  }

  /// Tells who wants to know, of the request as well as of its call, if there is one.
  void end_call(HttpEnd end) {
    if ((status_ != 0 || note_ != nullptr) && shared_.observe) {
      const std::chrono::duration<double> time = SteadyClock::now() - begin_;
      const beast::string_view method = http::to_string(parser_ ? parser_->get().method() : http::verb::unknown);
      shared_.observe({.route = asked_ == nullptr ? "none" : std::string_view(asked_->path),
                       .method = {method.data(), method.size()},
                       .status = status_,
                       .seconds = time.count(),
                       .caller = caller_,
                       .note = note_.get()});
    }
    caller_.reset();
    note_.reset();
    status_ = 0;
    is_head_ = false;
    is_last_ = false;
    is_events_ = false;
    route_ = asked_ = nullptr;
    gate_headers_.clear();
    keep_alive_s_ = 0;
    silence_.cancel();
    if (const auto call = std::exchange(call_, nullptr)) call->end(end);
  }

  /// Closing with bytes unread would make the system take the answer back from the client: what it still sends is read for a
  /// while.
  void linger() {
    if constexpr (!kIsTls) {
      error_code ignored;
      tcp_stream().socket().shutdown(tcp::socket::shutdown_send, ignored);
    }
    shared_.table.set_phase(*entry_, ConnectionPhase::kIdle);  // the first to make room
    tcp_stream().expires_after(kLinger);
    discard();
  }

  void discard() { stream_.async_read_some(net::buffer(piece_), bind(&Connection::on_discarded)); }

  void on_discarded(error_code error, std::size_t num_bytes) {
    num_discarded_ += num_bytes;
    if (error || num_discarded_ > kLingerBytes) return close();
    discard();
  }

  void say_goodbye() {
    if constexpr (kIsTls) {
      shared_.table.set_phase(*entry_, ConnectionPhase::kIdle);
      tcp_stream().expires_after(kLinger);
      stream_.async_shutdown(bind(&Connection::on_goodbye));
    } else {
      close();
    }
  }

  void on_goodbye(error_code) { close(); }

  void give_body_bytes() { shared_.table.give_body_bytes(std::exchange(body_bytes_, 0)); }

  HttpShared& shared_;
  const std::string local_address_;
  Stream stream_;
  net::steady_timer silence_;
  beast::flat_buffer buffer_;  // read, not yet parsed; bounds what a client can send ahead
  std::optional<HttpParser> parser_;
  std::optional<http::response<http::string_body>> response_;
  std::array<char, kBodyPiece> piece_;
  std::optional<ConnectionTable::Entry> entry_;  // while open
  int64_t body_bytes_ = 0;                       // taken from the table
  std::size_t num_discarded_ = 0;
  bool is_lingering_ = false;
  bool is_writing_ = false;        // an answer, or a part
  bool is_watching_ = false;       // a read is pending beside the call
  bool is_listening_ = false;      // to silence
  bool has_client_ended_ = false;  // it sends nothing more

  // Of one request:
  SteadyClock::time_point begin_;
  HttpRequest request_;
  const HttpRoute* route_ = nullptr;   // whose handler answers
  const HttpRoute* asked_ = nullptr;   // that the request names, also if it is refused
  std::optional<int> caller_;          // the key that came
  std::shared_ptr<RequestNote> note_;  // once a handler has the request, if somebody observes
  HttpHeaders gate_headers_;
  std::shared_ptr<HttpCall> call_;     // while its handler may answer it, or its answer is sent
  std::string bytes_;                  // of a stream, being sent
  SteadyClock::time_point last_sent_;  // something of a stream; before that, the handler's begin
  double keep_alive_s_ = 0;
  int status_ = 0;  // of the answer; 0: none yet
  bool is_head_ = false;
  bool is_chunked_ = false;
  bool is_events_ = false;   // the answer is a stream of them
  bool keep_alive_ = false;  // the connection
  bool is_last_ = false;     // the stream ends with bytes_
};

}  // namespace

void start_http_connection(tcp::socket socket, HttpShared& shared) {
  set_client_options(socket.native_handle(), shared.limits.http_write_s);
  if (shared.tls == nullptr) {
    std::make_shared<Connection<beast::tcp_stream>>(shared, std::move(socket))->start();
  } else {
    std::make_shared<Connection<beast::ssl_stream<beast::tcp_stream>>>(shared, std::move(socket), *shared.tls)->start();
  }
}

}  // namespace ferry

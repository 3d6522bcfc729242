#include "runtime/server/http/http_server.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <exception>
#include <future>
#include <list>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/net/host_port.h"
#include "runtime/net/listeners.h"
#include "runtime/server/descriptor_limit.h"
#include "runtime/server/http/connection.h"
#include "runtime/server/http/guard.h"
#include "runtime/server/http/listener.h"
#include "runtime/server/http/tls_context.h"

namespace ferry {
namespace {

namespace net = boost::asio;

constexpr int kHandlerThreads = 4;
constexpr int kMaxBlocking = 64;                       // requests with blocking handlers, running and waiting
constexpr std::chrono::milliseconds kStopGrace{1000};  // for last answers to leave
constexpr std::chrono::milliseconds kMemoryPause{20};  // after the I/O thread found no memory

/// One of the kMaxBlocking places, given back when it goes.
struct GiveBack {
  void operator()(std::atomic<int>* num_taken) const { num_taken->fetch_sub(1); }
};
using Place = std::unique_ptr<std::atomic<int>, GiveBack>;

HttpResponse answer_of(const BlockingHttpHandler& handler, const HttpRequest& request) {
  try {
    return handler(request);
  } catch (const Error& error) {
    return http_error(error);
  } catch (const std::exception& error) {  // not only Error: memory may run out
    return http_error(500, error.what());
  }
}

/// The place is free before the client has its answer.
void run_blocking(const BlockingHttpHandler& handler, const HttpRequest& request, HttpReply reply, Place place) {
  try {
    HttpResponse response = answer_of(handler, request);
    place.reset();
    reply.send(std::move(response));
  } catch (const std::exception&) {  // no memory for an answer: the reply says what it can when it goes
  }
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(const HttpServerOptions& options, const Access& access, HttpRouter router)
      : limits_(options.limits),
        routers_{std::move(router)},
        gate_(access, routers_.back(), parse_host_port("http", options.address).host),
        stop_time_(static_cast<int64_t>(options.stop_s * 1e3)),
        table_(affordable_connections(limits_.http_connections), limits_.http_total_body_bytes),
        shared_{.limits = limits_,
                .gate = gate_,
                .table = table_,
                .dispatch = {},
                .observe = options.observe,
                .probe_s = options.probe_s},
        handlers_(kHandlerThreads) {
    if (access.tls) {
      tls_.emplace(make_tls_context(*access.tls));
      shared_.tls = &*tls_;
    }
    shared_.dispatch = [this](const HttpRoute& route, HttpRequest request, HttpReply reply) {
      dispatch(route, std::move(request), std::move(reply));
    };
    Listeners listeners = open_listeners("http", options.address);
    for (FileDescriptor& socket : listeners.sockets) listeners_.emplace_back(io_, std::move(socket), shared_);
    address_ = std::move(listeners.address);
    thread_ = std::thread([this] { run(); });
  }

  ~Impl() {
    std::promise<void> has_stopped_accepting;
    net::post(io_, [&] {
      for (HttpListener& listener : listeners_) listener.close();
      shared_.is_stopping = true;
      table_.close_waiting();
      has_stopped_accepting.set_value();
    });
    has_stopped_accepting.get_future().wait();  // from here on nothing more reaches the handlers
    give_up_at_ = std::chrono::steady_clock::now() + stop_time_;
    handlers_.join();
    net::steady_timer grace(io_);
    net::post(io_, [&] {
      stay_.reset();
      end_when_empty(grace, std::chrono::steady_clock::now() + stop_time_);
    });
    thread_.join();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const std::string& address() const { return address_; }

  void set_router(HttpRouter router) {
    const auto next = std::make_shared<HttpRouter>(std::move(router));
    net::post(io_, [this, next] {
      routers_.push_back(std::move(*next));
      gate_.set_router(routers_.back());
    });
  }

 private:
  /// The I/O thread. What throws here has found no memory to accept with, or for a new connection; others go on.
  void run() {
    while (true) {
      try {
        for (HttpListener& listener : listeners_) listener.accept();
        io_.run();
        return;
      } catch (const std::exception&) {
        std::this_thread::sleep_for(kMemoryPause);
      }
    }
  }

  void dispatch(const HttpRoute& route, HttpRequest request, HttpReply reply) {
    if (route.handler) return route.handler(std::move(request), std::move(reply));
    const bool has_place = num_blocking_.fetch_add(1) < kMaxBlocking;
    Place place(&num_blocking_);
    if (!has_place) return reply.send(http_error(503, "too many requests wait; try again"));
    const auto is_gone = std::make_shared<std::atomic<bool>>(false);
    if (route.watches_client) reply.set_on_closed([is_gone](HttpEnd end) { *is_gone = end != HttpEnd::kAnswered; });
    request.check_in = [this, is_gone] { check_in(*is_gone); };
    net::post(handlers_, [&route, request = std::move(request), reply = std::move(reply), place = std::move(place)]() mutable {
      run_blocking(route.blocking, request, std::move(reply), std::move(place));
    });
  }

  /// Throws Error if a handler that blocks works for nobody any more.
  void check_in(bool is_gone) const {
    if (is_gone) throw Error(ErrorCode::kCancelled, "the client has gone");
    if (std::chrono::steady_clock::now() >= give_up_at_.load()) throw Error(ErrorCode::kUnavailable, "the server stops");
  }

  /// Connections end by themselves once their answers are out. Those that have none by the deadline are closed, and those whose
  /// clients do not take them after a last while.
  void end_when_empty(net::steady_timer& timer, std::chrono::steady_clock::time_point deadline) {
    table_.close_waiting();
    const auto now = std::chrono::steady_clock::now();
    if (table_.num_connections(ConnectionPhase::kAnswer) == 0) deadline = std::min(deadline, now + kStopGrace);
    if (now >= deadline) table_.close_all();
    if (table_.empty()) return;
    timer.expires_after(std::chrono::milliseconds(5));
    timer.async_wait([this, &timer, deadline](boost::system::error_code) { end_when_empty(timer, deadline); });
  }

  const ServerLimits limits_;
  std::list<HttpRouter> routers_;  // the last one is in use, the others by requests that are open; of the I/O thread
  HttpGate gate_;
  const std::chrono::milliseconds stop_time_;
  ConnectionTable table_;
  HttpShared shared_;
  std::optional<net::ssl::context> tls_;
  net::io_context io_{1};
  net::executor_work_guard<net::io_context::executor_type> stay_{io_.get_executor()};
  std::list<HttpListener> listeners_;  // one for each address of the host
  std::string address_;
  std::atomic<int> num_blocking_{0};
  std::atomic<std::chrono::steady_clock::time_point> give_up_at_{std::chrono::steady_clock::time_point::max()};
  net::thread_pool handlers_;
  std::thread thread_;
};

HttpServer::HttpServer(const HttpServerOptions& options, const Access& access, HttpRouter router)
    : impl_(std::make_unique<Impl>(options, access, std::move(router))) {}
HttpServer::~HttpServer() = default;
const std::string& HttpServer::address() const { return impl_->address(); }
void HttpServer::set_router(HttpRouter router) { impl_->set_router(std::move(router)); }

}  // namespace ferry

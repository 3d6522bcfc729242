#include "runtime/server/http/listener.h"

#include <chrono>
#include <utility>

#include "runtime/base/error.h"

namespace ferry {
namespace {

using boost::system::error_code;
using tcp = boost::asio::ip::tcp;

constexpr std::chrono::milliseconds kRetryPause{20};

}  // namespace

HttpListener::HttpListener(boost::asio::io_context& io, const HostPort& to, HttpShared& shared)
    : shared_(shared), acceptor_(io), retry_(io) {
  const bool is_bracketed = to.host.front() == '[' && to.host.back() == ']';
  const std::string host = is_bracketed ? to.host.substr(1, to.host.size() - 2) : to.host;
  const auto refuse = [&](const error_code& error) {
    throw Error(ErrorCode::kFailedPrecondition, "cannot serve http on " + to.host + ":" + std::to_string(to.port) +
                                                    ": the address is in use or does not belong to this host (" +
                                                    error.message() + ")");
  };
  error_code error;
  const auto found = tcp::resolver(io).resolve(host, std::to_string(to.port), tcp::resolver::passive, error);
  if (error || found.empty()) refuse(error);
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(tcp::acceptor::max_listen_connections, error);
  if (!error) acceptor_.non_blocking(true, error);
  if (error) refuse(error);
  port_ = acceptor_.local_endpoint().port();
}

void HttpListener::accept() {
  if (is_waiting_ || !acceptor_.is_open()) return;
  // Not async_accept: without descriptors it fails at once, though nobody may be waiting.
  acceptor_.async_wait(tcp::acceptor::wait_read, [this](error_code) { on_wait(); });
  is_waiting_ = true;
}

void HttpListener::on_wait() {
  is_waiting_ = false;
  if (acceptor_.is_open()) take_one();
}

void HttpListener::take_one() {
  error_code error;
  tcp::socket socket = acceptor_.accept(error);
  if (error && error != boost::asio::error::would_block && error != boost::asio::error::connection_aborted) {
    // At the first failure time alone may help, and whoever came last gets its answer meanwhile.
    if (++num_failures_ > 1) shared_.table.close_longest_waiting();
    return accept_later();
  }
  num_failures_ = 0;
  if (!error && (!shared_.table.is_full() || shared_.table.close_longest_waiting()))
    start_http_connection(std::move(socket), shared_);
  accept();
}

void HttpListener::accept_later() {
  retry_.expires_after(kRetryPause);
  retry_.async_wait([this](error_code) { on_wait(); });
  is_waiting_ = true;
}

void HttpListener::close() {
  error_code ignored;
  acceptor_.close(ignored);
  retry_.cancel();
}

}  // namespace ferry

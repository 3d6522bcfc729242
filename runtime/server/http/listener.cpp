#include "runtime/server/http/listener.h"

#include <sys/socket.h>

#include <chrono>
#include <utility>

namespace ferry {
namespace {

using boost::system::error_code;
using tcp = boost::asio::ip::tcp;

constexpr std::chrono::milliseconds kRetryPause{20};

tcp protocol_of(const FileDescriptor& socket) {
  int domain = AF_INET;
  socklen_t size = sizeof domain;
  getsockopt(socket.get(), SOL_SOCKET, SO_DOMAIN, &domain, &size);
  return domain == AF_INET6 ? tcp::v6() : tcp::v4();
}

}  // namespace

HttpListener::HttpListener(boost::asio::io_context& io, FileDescriptor socket, HttpShared& shared)
    : shared_(shared), acceptor_(io), retry_(io) {
  acceptor_.assign(protocol_of(socket), socket.get());
  socket.release();
  acceptor_.non_blocking(true);
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

#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <functional>
#include <memory>

#include "runtime/options/server_limits.h"
#include "runtime/server/http/connection_table.h"
#include "runtime/server/http/guard.h"
#include "runtime/server/http/message.h"
#include "runtime/server/http/observer.h"
#include "runtime/server/http/reply.h"

namespace ferry {

/// What all connections of a server share. It outlives them; used by the I/O thread alone.
struct HttpShared {
  const ServerLimits& limits;
  const HttpGate& gate;
  ConnectionTable& table;
  /// Has the route's handler answer, on whatever thread it needs.
  std::function<void(const HttpRoute& route, HttpRequest request, HttpReply reply)> dispatch;
  HttpObserver observe{};                    // may be empty
  double probe_s = 1;                        // HttpServerOptions::probe_s
  boost::asio::ssl::context* tls = nullptr;  // null: plain text
  bool is_stopping = false;                  // no connection is kept beyond its answer
};

/// Serves one client on `socket`, one request after the other: the next one is not read before this one is answered. Every wait
/// for the client has a deadline. The connection owns itself, and is in `shared.table` while it is open.
void start_http_connection(boost::asio::ip::tcp::socket socket, HttpShared& shared);

}  // namespace ferry

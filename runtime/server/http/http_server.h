#pragma once

#include <memory>
#include <string>

#include "runtime/options/server_limits.h"
#include "runtime/server/access.h"
#include "runtime/server/http/observer.h"
#include "runtime/server/http/router.h"

namespace ferry {

struct HttpServerOptions {
  std::string address = "127.0.0.1:8000";  // HOST:PORT; port 0 lets the system choose one
  ServerLimits limits;                     // those that begin with http_
  HttpObserver observe{};                  // may be empty
  double stop_s = 10;                      // when it stops, for open calls to be answered and streams to be finished
  double probe_s = 1;                      // of silence towards a client that sends nothing more, until it is looked for
};

/// HTTP/1.1, with TLS if `access` says so. One thread does all input and output, four run the handlers that may block; clients
/// that are slow or silent cost a connection each, until a deadline or until it is needed for somebody else. So does a streamed
/// answer, however long it lasts.
///
/// Any thread may call any method. `access` must outlive the server.
class HttpServer {
 public:
  /// Listens when it returns. Throws Error{kInvalidArgument} for an address that is not HOST:PORT and for TLS files that cannot
  /// be used, Error{kFailedPrecondition} if it cannot be listened on.
  HttpServer(const HttpServerOptions& options, const Access& access, HttpRouter router);
  /// Stops: takes no more requests, and closes when open calls are answered and streams are finished, or
  /// HttpServerOptions::stop_s have passed. Handlers that block are waited for: HttpRequest::check_in tells
  /// them when that is over.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// HOST:PORT with the port that is really used.
  const std::string& address() const;

  /// Requests whose headers have not come yet go by `router` from now on. Open requests keep their handlers, so what handlers
  /// of any router use must outlive the server.
  void set_router(HttpRouter router);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry

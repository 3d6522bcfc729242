#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/server/http/message.h"

namespace ferry {

/// What another HTTP server is asked. Names and values of headers are those of a request that this server has read, so they
/// hold no line breaks.
struct HttpQuestion {
  std::string address;  // HOST:PORT
  std::string method = "GET";
  std::string path = "/";
  HttpHeaders headers{};                      // beside Host, Connection and Content-Length
  std::shared_ptr<const std::string> body{};  // null: none. Shared, since it may be asked again elsewhere
  double connect_s = 2;                       // to find the host and be connected
  double write_s = 30;                        // for the other end to take the question
};

/// Status and headers of the answer.
struct HttpAnswerHead {
  int status = 0;
  HttpHeaders headers{};            // names in lower case, in the order sent
  std::optional<int64_t> length{};  // of the body, if it was told
};

enum class ExchangeEnd {
  kWhole,        // the answer has come to its end
  kUnreachable,  // no connection, or one that ended before the answer's head was there
  kBroken,       // it ended in the answer
  kCancelled,    // HttpExchange::cancel, or the client's end
};

/// Gets an answer as it comes. All calls are made on the client's thread, where they must not block.
class ExchangeHearer {
 public:
  virtual ~ExchangeHearer() = default;
  virtual void on_head(HttpAnswerHead head) = 0;
  /// Of the body, never empty.
  virtual void on_piece(std::string_view piece) = 0;
  /// True: no more of the body is read for a moment, and then it is asked again.
  virtual bool is_full() = 0;
  /// Once, and the last call. `reason` says why it is no kWhole.
  virtual void on_end(ExchangeEnd end, const std::string& reason) = 0;
};

/// A question under way. Any thread may cancel it; it ends soon, by on_end.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  virtual void cancel() = 0;
};

/// Asks other servers over HTTP/1.1 in plain text. Each question has a connection of its own, so that none is lost to one that
/// the other end was about to close; the answer's head is waited for as long as the connection stands (its other end is a
/// server that may compute for minutes; a host that vanishes is noticed by TCP within a minute). Heads have at most 64 KiB.
/// Interim answers (1xx, RFC 9110) are passed over: up to 8, and never a 101.
///
/// Any thread may call any method; all input and output is one thread's.
class HttpClient {
 public:
  HttpClient();
  /// Cancels what is under way.
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// Begins; does not call `hearer` itself. It is kept until on_end has returned. Throws Error{kInvalidArgument} for an address
  /// that is not HOST:PORT.
  std::shared_ptr<HttpExchange> start(HttpQuestion question, std::shared_ptr<ExchangeHearer> hearer);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry

#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/error.h"

namespace ferry {

/// What a client asked. It has passed the server's bounds.
struct HttpRequest {
  std::string method;                                        // "GET", as sent
  std::string path;                                          // of the target, up to its first '?', not decoded
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case, in the order sent
  std::string body;
  std::string local_address;  // of this end of the connection, without port
  bool has_body = false;      // announced, if only with 0 bytes to come

  /// The first header of this lower-case name.
  std::optional<std::string_view> header(std::string_view name) const;
  /// How often it was sent.
  int count(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string body;  // JSON
  std::vector<std::pair<std::string, std::string>> headers{};
};

/// {"error": message}.
HttpResponse http_error(int status, std::string_view message);
/// The status that an Error's code stands for, with its message.
HttpResponse http_error(const Error& error);

/// The right to answer one request, once, from any thread. Dropped without an answer it sends status 500, so that no client
/// waits for nothing. Must not outlive the server.
class HttpReply {
 public:
  explicit HttpReply(std::function<void(HttpResponse)> send) : send_(std::move(send)) {}
  ~HttpReply();
  HttpReply(HttpReply&& other) noexcept : send_(std::exchange(other.send_, nullptr)) {}
  HttpReply& operator=(HttpReply&&) = delete;

  void send(HttpResponse response);

 private:
  std::function<void(HttpResponse)> send_;  // empty: answered, or moved on
};

}  // namespace ferry

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/error.h"

namespace ferry {

class RequestNote;

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

/// What a client asked. It has passed the server's bounds.
struct HttpRequest {
  std::string method;   // "GET", as sent
  std::string path;     // of the target, up to its first '?', not decoded
  HttpHeaders headers;  // names in lower case, in the order sent
  std::string body;
  std::string local_address;            // of this end of the connection, without port
  bool has_body = false;                // announced, if only with 0 bytes to come
  std::optional<int> caller;            // which key came (ApiKeys::find)
  std::shared_ptr<RequestNote> note{};  // where the handler may leave figures for a log; null: nobody asks
  /// For a handler that blocks to call now and then: throws Error once the server has waited for it long enough to stop, or the
  /// client has gone (HttpRoute::watches_client). Empty for other handlers.
  std::function<void()> check_in = {};

  /// The first header of this lower-case name.
  std::optional<std::string_view> header(std::string_view name) const;
  /// How often it was sent.
  int count(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string body;
  HttpHeaders headers{};
  std::string content_type = "application/json";  // empty: no such header
};

/// {"error": {"message", "type": the status' phrase, "param": null, "code": status}}, as OpenAI's clients read errors.
HttpResponse http_error(int status, std::string_view message);
/// The status that an Error's code stands for, with its message.
HttpResponse http_error(const Error& error);

}  // namespace ferry

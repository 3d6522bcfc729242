#pragma once

#include <functional>
#include <optional>
#include <string_view>

namespace ferry {

class RequestNote;

/// A request whose answer has ended, whether or not all of it has left.
struct HttpAnswered {
  std::string_view route;             // where its route was added (HttpRouter::add); "none" for one without a route
  std::string_view method;            // "GET"; "<unknown>" for none of HTTP's
  int status = 0;                     // the answer's; 0: the client went before it began
  double seconds = 0;                 // from the request's head to the answer's end
  std::optional<int> caller{};        // which key came (ApiKeys::find)
  const RequestNote* note = nullptr;  // what the handler has noted; null: the request did not reach one
};

/// Returns whether monitors ask for a route every few seconds, and users do not.
bool only_watches(std::string_view route);

/// Hears of every request that a handler got or that was answered. Called on the I/O thread: must be quick and must not throw.
using HttpObserver = std::function<void(const HttpAnswered& answered)>;

}  // namespace ferry

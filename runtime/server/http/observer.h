#pragma once

#include <functional>
#include <string_view>

namespace ferry {

/// A request whose answer has ended, whether or not all of it has left.
struct HttpAnswered {
  std::string_view route;   // where its route was added (HttpRouter::add); "none" for one without a route
  std::string_view method;  // "GET"; "<unknown>" for none of HTTP's
  int status = 0;           // the answer's
  double seconds = 0;       // from the request's head to the answer's end
};

/// Hears of every answered request. Called on the I/O thread: must be quick and must not throw.
using HttpObserver = std::function<void(const HttpAnswered& answered)>;

}  // namespace ferry

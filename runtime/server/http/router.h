#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "runtime/server/http/message.h"

namespace ferry {

/// Takes a request on the server's I/O thread and must not block there: it answers at once, or hands `reply` to another thread.
using HttpHandler = std::function<void(HttpRequest request, HttpReply reply)>;
/// Makes the answer on a thread where it may block. What it throws becomes an error's answer.
using BlockingHttpHandler = std::function<HttpResponse(const HttpRequest& request)>;

/// Who may call a route: with kOpen anybody, without a key and whatever Host and Origin say.
enum class HttpGuard { kGuarded, kOpen };

struct HttpRoute {
  HttpHandler handler;  // one of the two
  BlockingHttpHandler blocking;
  HttpGuard guard = HttpGuard::kGuarded;
};

/// Which handler answers which method and path. Filled before the server is made, then only read.
class HttpRouter {
 public:
  /// `method` in upper case. A GET route answers HEAD, too.
  void add(const std::string& method, const std::string& path, HttpRoute route);

  /// Null if there is none.
  const HttpRoute* find(std::string_view method, std::string_view path) const;
  /// "GET, HEAD": methods of a path, empty if nothing is there.
  std::string methods(std::string_view path) const;

 private:
  std::map<std::string, std::map<std::string, HttpRoute, std::less<>>, std::less<>> routes_;  // by path, then method
};

}  // namespace ferry

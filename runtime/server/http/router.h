#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "runtime/server/http/message.h"
#include "runtime/server/http/reply.h"

namespace ferry {

/// Takes a request on the server's I/O thread and must not block there: it answers at once, or hands `reply` to another thread.
using HttpHandler = std::function<void(HttpRequest request, HttpReply reply)>;
/// Makes the answer on a thread where it may block. What it throws becomes an error's answer.
using BlockingHttpHandler = std::function<HttpResponse(const HttpRequest& request)>;

/// Who may call a route.
enum class HttpGuard {
  kGuarded,  // who has a key, if there are any, and asks this server's name, from no page of another site
  kNoKey,    // the same without a key: what programs that watch a server read
  kOpen,     // anybody, whatever Host and Origin say: what load balancers ask
};

/// Puts what the server itself refuses a request with, http_error()'s {"error": message}, into the form of a route's API.
using HttpRewording = void (*)(HttpResponse& refusal);

struct HttpRoute {
  HttpHandler handler;  // one of the two
  BlockingHttpHandler blocking;
  HttpGuard guard = HttpGuard::kGuarded;
  HttpRewording reword = nullptr;  // null: it stays as it is
  bool watches_client = false;     // a blocking handler's HttpRequest::check_in tells it also that the client has gone
  std::string path;                // HttpRouter sets it: where it was added
};

/// Which handler answers which method and path. Filled before the server is made, then only read.
class HttpRouter {
 public:
  /// `method` in upper case. A GET route answers HEAD, too. A path that ends with "/*" is that of all whose last part it could
  /// be, which is not empty ("/v1/responses/*" of "/v1/responses/abc"). One that ends with "/**" is that of all paths below.
  /// A path that is added as it is goes first, then "/*", then the longest "/**".
  void add(const std::string& method, const std::string& path, HttpRoute route);

  /// Null if there is none.
  const HttpRoute* find(std::string_view method, std::string_view path) const;
  /// "GET, HEAD": methods of a path, empty if nothing is there.
  std::string methods(std::string_view path) const;

 private:
  using Methods = std::map<std::string, HttpRoute, std::less<>>;
  const Methods* at(std::string_view path) const;

  std::map<std::string, Methods, std::less<>> routes_;  // by path
};

}  // namespace ferry

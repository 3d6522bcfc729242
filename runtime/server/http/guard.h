#pragma once

#include <optional>
#include <string>

#include "runtime/server/access.h"
#include "runtime/server/http/message.h"
#include "runtime/server/http/router.h"

namespace ferry {

/// Decides from a request's headers alone, before its body is read, whether it may reach its route. It must
///
///   name this server as its Host: loopback, the bound host, the address it came to, or an allowed name (a page whose own name
///     was made to point here would name itself);
///   not come from a page of another site: an Origin must be this server's, Sec-Fetch-Site must not say otherwise. Browsers
///     send Origin with every POST, with a body or without;
///   carry a key, if there are any: `Authorization: Bearer KEY` or `x-api-key: KEY`;
///   be of a known path and method, and say Content-Type: application/json if it has a body (which a page of another site
///     cannot send without asking first, and nobody here answers that question).
class HttpGate {
 public:
  /// Both must outlive this. `bound_host` as in HOST:PORT.
  HttpGate(const Access& access, const HttpRouter& router, std::string bound_host);

  struct Verdict {
    const HttpRoute* route = nullptr;     // null: refused
    std::optional<int> caller;            // the key that came
    std::optional<HttpResponse> refusal;  // 400, 401, 403, 404, 405 or 415
  };
  Verdict judge(const HttpRequest& request) const;

 private:
  std::optional<HttpResponse> check_host(const HttpRequest& request) const;
  std::optional<HttpResponse> check_origin(const HttpRequest& request) const;

  const Access& access_;
  const HttpRouter& router_;
  const std::string bound_host_;
};

}  // namespace ferry

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
///   not come from a page of another site: an Origin must be this server's or an allowed one, Sec-Fetch-Site must not say
///     otherwise. Browsers send Origin with every POST, with a body or without;
///   carry a key, if there are any: `Authorization: Bearer KEY` or `x-api-key: KEY`;
///   be of a known path and method, and say Content-Type: application/json if it has a body (which a page of another site
///     cannot send without asking first).
///
/// A page of an allowed origin that asks first (OPTIONS with Access-Control-Request-Method) is told that it may; its browser
/// sends no key with that. Nobody else gets an answer to the question.
class HttpGate {
 public:
  /// Both must outlive this, and routers that replace the first one. `bound_host` as in HOST:PORT.
  HttpGate(const Access& access, const HttpRouter& router, std::string bound_host);

  struct Verdict {
    const HttpRoute* route = nullptr;    // null: the gate answers
    const HttpRoute* asked = nullptr;    // the route that the request names, also if it is refused; null: there is none
    std::optional<int> caller;           // the key that came
    std::optional<HttpResponse> answer;  // 400, 401, 403, 404, 405 or 415; 200 to a page that asked whether it may ask
    HttpHeaders headers;                 // of every answer to this request: what lets a page of an allowed origin read it
  };
  Verdict judge(const HttpRequest& request) const;
  /// Requests that are judged from now on go by `router`. One thread at a time uses this.
  void set_router(const HttpRouter& router) { router_ = &router; }
  /// Where a request would go, whoever sent it; null: nowhere.
  const HttpRoute* route_of(const HttpRequest& request) const { return router_->find(request.method, request.path); }

 private:
  bool is_allowed_origin(const HttpRequest& request) const;
  std::optional<HttpResponse> check_host(const HttpRequest& request) const;
  std::optional<HttpResponse> check_origin(const HttpRequest& request) const;
  /// What is said to whoever does not reach the route (null: there is none).
  std::optional<HttpResponse> answer_at_gate(const HttpRequest& request, const HttpRoute* route, bool has_key) const;
  std::optional<HttpResponse> answer_preflight(const HttpRequest& request) const;
  HttpHeaders cross_origin_headers(const HttpRequest& request) const;

  const Access& access_;
  const HttpRouter* router_;
  const std::string bound_host_;
};

}  // namespace ferry

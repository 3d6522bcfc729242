#include "runtime/server/http/guard.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "runtime/base/lower_case.h"
#include "runtime/base/quoting.h"
#include "runtime/net/host_port.h"
#include "runtime/net/hosts.h"

namespace ferry {
namespace {

/// "name" of "Name:8000", "::1" of "[::1]:8000".
std::string host_name(std::string_view host_header) {
  const std::string host = lower_case(host_header);
  const std::size_t bracket = host.find(']'), colon = host.find(':', bracket == std::string::npos ? 0 : bracket);
  return without_brackets(host.substr(0, colon));
}

/// The key that a request carries, empty if none.
std::string_view key_of(const HttpRequest& request) {
  return presented_key(request.header("authorization").value_or(""), request.header("x-api-key").value_or(""));
}

bool is_json(std::string_view content_type) {
  std::string type = lower_case(content_type.substr(0, content_type.find(';')));
  while (!type.empty() && type.back() == ' ') type.pop_back();
  return type == "application/json";
}

/// What may not come twice: which of them would count?
std::optional<HttpResponse> check_single(const HttpRequest& request) {
  for (const char* name : {"host", "origin", "content-type", "authorization", "x-api-key"}) {
    if (request.count(name) > 1) return http_error(400, "header " + std::string(name) + " occurs twice; allowed: once");
  }
  return std::nullopt;
}

}  // namespace

HttpGate::HttpGate(const Access& access, const HttpRouter& router, std::string bound_host)
    : access_(access), router_(&router), bound_host_(without_brackets(lower_case(bound_host))) {}

std::optional<HttpResponse> HttpGate::check_host(const HttpRequest& request) const {
  const auto header = request.header("host");
  if (!header) return http_error(400, "header Host is missing");
  const std::string host = host_name(*header);
  const auto& allowed = access_.allowed_hosts;
  if (is_loopback_host(host) || host == bound_host_ || host == request.local_address) return std::nullopt;
  if (std::find(allowed.begin(), allowed.end(), host) != allowed.end()) return std::nullopt;
  return http_error(403, "Host is " + in_quotes(host) + "; allowed: loopback, the server's address, names of --allowed-host");
}

bool HttpGate::is_allowed_origin(const HttpRequest& request) const {
  const auto& allowed = access_.allowed_origins;
  const auto origin = request.header("origin");
  if (!origin) return false;
  return std::any_of(allowed.begin(), allowed.end(),
                     [given = lower_case(*origin)](const std::string& each) { return each == "*" || each == given; });
}

std::optional<HttpResponse> HttpGate::check_origin(const HttpRequest& request) const {
  if (is_allowed_origin(request)) return std::nullopt;
  if (const auto origin = request.header("origin")) {
    const std::string host = lower_case(request.header("host").value_or(""));
    const std::string given = lower_case(*origin);
    if (given != "http://" + host && given != "https://" + host)
      return http_error(403,
                        "Origin is " + in_quotes(*origin) + "; allowed: none, this server's, or those of --allowed-origin");
  }
  const std::string site = lower_case(request.header("sec-fetch-site").value_or("none"));
  if (site != "none" && site != "same-origin") return http_error(403, "a page of another site may not ask this");
  return std::nullopt;
}

/// How the question and its answer look: the Fetch standard, "CORS protocol".
std::optional<HttpResponse> HttpGate::answer_preflight(const HttpRequest& request) const {
  const bool is_asked = request.method == "OPTIONS" && request.header("access-control-request-method");
  const std::string methods = router_->methods(request.path);
  if (!is_asked || methods.empty() || !is_allowed_origin(request)) return std::nullopt;
  HttpResponse response{.status = 200, .content_type = ""};
  response.headers = {{"Access-Control-Allow-Methods", methods}, {"Access-Control-Max-Age", "600"}};
  if (const auto names = request.header("access-control-request-headers"))
    response.headers.emplace_back("Access-Control-Allow-Headers", *names);
  return response;
}

HttpHeaders HttpGate::cross_origin_headers(const HttpRequest& request) const {
  if (!is_allowed_origin(request)) return {};
  return {{"Access-Control-Allow-Origin", std::string(*request.header("origin"))},
          {"Access-Control-Expose-Headers", "X-Request-Id, Retry-After"},
          {"Vary", "Origin"}};
}

std::optional<HttpResponse> HttpGate::answer_at_gate(const HttpRequest& request, const HttpRoute* route, bool has_key) const {
  const HttpGuard guard = route == nullptr ? HttpGuard::kGuarded : route->guard;
  if (guard != HttpGuard::kOpen) {
    if (auto refusal = check_single(request)) return refusal;
    if (auto refusal = check_host(request)) return refusal;
    if (auto refusal = check_origin(request)) return refusal;
    if (auto answer = answer_preflight(request)) return answer;
  }
  if (guard == HttpGuard::kGuarded && !access_.keys.empty() && !has_key) {
    HttpResponse refusal = http_error(401, "a key is missing or wrong; allowed: Authorization: Bearer KEY, or x-api-key: KEY");
    refusal.headers.emplace_back("WWW-Authenticate", "Bearer");
    return refusal;
  }
  if (route == nullptr) {
    const std::string methods = router_->methods(request.path);
    if (methods.empty()) return http_error(404, "there is nothing at " + in_quotes(request.path));
    HttpResponse refusal = http_error(405, "method is " + in_quotes(request.method) + "; allowed: " + methods);
    refusal.headers.emplace_back("Allow", methods);
    return refusal;
  }
  const auto type = request.header("content-type");
  if ((type || request.has_body) && !is_json(type.value_or("")))
    return http_error(415, "Content-Type is " + in_quotes(type.value_or("")) + "; allowed: application/json");
  const auto encoding = request.header("content-encoding");
  if (request.has_body && encoding && lower_case(*encoding) != "identity")
    return http_error(415, "Content-Encoding is " + in_quotes(*encoding) + "; allowed: identity, which is none");
  return std::nullopt;
}

HttpGate::Verdict HttpGate::judge(const HttpRequest& request) const {
  const HttpRoute* const route = route_of(request);
  Verdict verdict{.route = nullptr,
                  .asked = route,
                  .caller = access_.keys.find(key_of(request)),
                  .answer = {},
                  .headers = cross_origin_headers(request)};
  verdict.answer = answer_at_gate(request, route, verdict.caller.has_value());
  const bool is_refused = verdict.answer && verdict.answer->status >= 400;
  if (is_refused && route != nullptr && route->reword != nullptr) route->reword(*verdict.answer);
  if (!verdict.answer) verdict.route = route;
  return verdict;
}

}  // namespace ferry

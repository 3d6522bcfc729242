#include "runtime/server/http/request_head.h"

#include <iterator>

#include "runtime/base/lower_case.h"
#include "runtime/base/quoting.h"

namespace ferry {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;

/// Beast takes a body whose last coding is not "chunked" for none, and what it holds for the next request.
std::optional<HttpResponse> check_framing(const HttpParser& parser) {
  constexpr unsigned kHttp11 = 11;
  const auto& message = parser.get();
  const auto coding = message.find(http::field::transfer_encoding);
  if (coding == message.end()) return std::nullopt;
  const std::string value(coding->value());
  if (lower_case(value) != "chunked") return http_error(501, "Transfer-Encoding is " + in_quotes(value) + "; allowed: chunked");
  if (message.version() < kHttp11) return http_error(400, "Transfer-Encoding comes with HTTP/1.0; allowed: with HTTP/1.1");
  return std::nullopt;
}

}  // namespace

void set_limits(HttpParser& parser, const ServerLimits& limits) {
  parser.header_limit(static_cast<std::uint32_t>(limits.http_header_bytes));
  parser.body_limit(static_cast<std::uint64_t>(limits.http_body_bytes));
}

std::optional<HttpResponse> check_head(const HttpParser& parser, const ServerLimits& limits) {
  const auto num_headers = std::distance(parser.get().begin(), parser.get().end());
  if (num_headers > limits.http_headers)
    return http_error(431, std::to_string(num_headers) + " headers; allowed: " + std::to_string(limits.http_headers));
  return check_framing(parser);
}

HttpRequest read_target(const HttpParser& parser) {
  const auto& message = parser.get();
  HttpRequest request;
  request.method = std::string(message.method_string());
  const std::string target(message.target());
  request.path = target.substr(0, target.find('?'));
  return request;
}

HttpRequest read_head(const HttpParser& parser, const std::string& local_address) {
  const auto& message = parser.get();
  HttpRequest request = read_target(parser);
  for (const auto& field : message)
    request.headers.emplace_back(lower_case(std::string(field.name_string())), std::string(field.value()));
  request.local_address = local_address;
  request.has_body = parser.chunked() || parser.content_length().value_or(0) > 0;
  return request;
}

}  // namespace ferry

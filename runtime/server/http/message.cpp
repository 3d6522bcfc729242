#include "runtime/server/http/message.h"

#include <algorithm>
#include <boost/beast/http/status.hpp>
#include <nlohmann/json.hpp>
#include <string>

namespace ferry {
namespace {

int status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return 400;
    case ErrorCode::kNotFound: return 404;
    case ErrorCode::kFailedPrecondition:
    case ErrorCode::kAborted: return 409;
    case ErrorCode::kResourceExhausted: return 429;
    case ErrorCode::kUnimplemented: return 501;
    case ErrorCode::kUnavailable: return 503;
    case ErrorCode::kDeadlineExceeded: return 504;
    case ErrorCode::kCancelled:
    case ErrorCode::kInternal: return 500;
  }
  return 500;
}

}  // namespace

std::optional<std::string_view> HttpRequest::header(std::string_view name) const {
  const auto found = std::find_if(headers.begin(), headers.end(), [&](const auto& header) { return header.first == name; });
  return found == headers.end() ? std::nullopt : std::optional<std::string_view>(found->second);
}

int HttpRequest::count(std::string_view name) const {
  return static_cast<int>(
      std::count_if(headers.begin(), headers.end(), [&](const auto& header) { return header.first == name; }));
}

HttpResponse http_error(int status, std::string_view message) {
  using nlohmann::ordered_json;
  const auto phrase = boost::beast::http::obsolete_reason(boost::beast::http::int_to_status(static_cast<unsigned>(status)));
  const ordered_json body = {
      {"error", {{"message", one_line(message)}, {"type", std::string(phrase)}, {"param", nullptr}, {"code", status}}}};
  return {.status = status, .body = body.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n"};
}

HttpResponse http_error(const Error& error) { return http_error(status_of(error.code()), error.what()); }

}  // namespace ferry

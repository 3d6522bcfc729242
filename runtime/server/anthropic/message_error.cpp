#include "runtime/server/anthropic/message_error.h"

#include "runtime/base/json.h"

namespace ferry::api::anthropic {
namespace {

const char* type_of(int status) {
  switch (status) {
    case 400:
    case 405:
    case 415: return "invalid_request_error";
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    default: return "api_error";
  }
}

ordered_json error_object(int status, const std::string& message) {
  return {{"type", "error"}, {"error", {{"type", type_of(status)}, {"message", message}}}};
}

std::string error_json(int status, const std::string& message) { return dump(error_object(status, message)); }

/// The server's own {"error": {"message": …}}.
void reword(HttpResponse& refusal) {
  const ordered_json told = parse_ordered_json(refusal.body, "refusal", {});
  refusal.body = error_json(refusal.status, told.at("error").at("message").get<std::string>());
}

}  // namespace

ErrorForm message_errors() {
  const auto response = [](const ApiError& error) {
    HttpResponse told = error.response();
    told.body = error_json(error.status(), error.what());
    return told;
  };
  const auto stream_end = [](const ApiError& error) { return named_server_sent(error_object(error.status(), error.what())); };
  return {.response = response, .stream_end = stream_end, .reword = reword};
}

}  // namespace ferry::api::anthropic

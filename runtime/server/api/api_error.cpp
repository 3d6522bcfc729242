#include "runtime/server/api/api_error.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/base/out_of_memory.h"

namespace ferry::api {
namespace {

constexpr const char* kRetrySeconds = "1";  // a queue moves on as soon as a request ends

int status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kFailedPrecondition: return 400;
    case ErrorCode::kNotFound: return 404;
    case ErrorCode::kUnimplemented: return 501;
    case ErrorCode::kResourceExhausted:
    case ErrorCode::kUnavailable: return 503;
    case ErrorCode::kDeadlineExceeded:
    case ErrorCode::kAborted:
    case ErrorCode::kCancelled:
    case ErrorCode::kInternal: return 500;
  }
  return 500;
}

const char* type_of(int status) {
  switch (status) {
    case 400: return "BadRequestError";
    case 404: return "NotFoundError";
    case 501: return "NotImplementedError";
    case 503: return "ServiceUnavailableError";
    default: return "InternalServerError";
  }
}

}  // namespace

ApiError::ApiError(int status, std::string type, std::string message, std::string param)
    : status_(status), type_(std::move(type)), message_(one_line(message)), param_(std::move(param)) {}

ApiError::ApiError(const Error& error, std::string param)
    : ApiError(status_of(error.code()), type_of(status_of(error.code())), error.what(), std::move(param)) {}

std::string ApiError::json() const {
  using nlohmann::ordered_json;
  const ordered_json error = {{"error",
                               {{"message", message_},
                                {"type", type_},
                                {"param", param_.empty() ? ordered_json() : ordered_json(param_)},
                                {"code", status_}}}};
  return error.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

HttpResponse ApiError::response() const {
  HttpResponse response{.status = status_, .body = json()};
  if (status_ == 503) response.headers.emplace_back("Retry-After", kRetrySeconds);
  return response;
}

void refuse(const std::string& param, const std::string& message) { throw ApiError(400, "BadRequestError", message, param); }

void refuse_form(const std::string& param, const std::string& message) { throw ApiError(400, "Bad Request", message, param); }

ApiError current_error() {
  try {
    throw;
  } catch (const ApiError& error) {
    return error;
  } catch (const Error& error) {
    return ApiError(error);
  } catch (const std::bad_alloc&) {
    return ApiError(out_of_memory());
  } catch (const std::exception& error) {
    return ApiError(Error(ErrorCode::kInternal, error.what()));
  }
}

}  // namespace ferry::api

#pragma once

#include <exception>
#include <string>

#include "runtime/base/error.h"
#include "runtime/server/http/message.h"

namespace ferry::api {

/// What a client is told when something is wrong. Types and the form are vLLM's for OpenAI's API, other APIs have an ErrorForm:
/// {"error":{"message":…,"type":…,"param":…,"code":…}}, where code is the HTTP status.
class ApiError : public std::exception {
 public:
  /// `param` is the field that is wrong, empty if no single one is.
  ApiError(int status, std::string type, std::string message, std::string param = "");
  /// What an Error from within stands for: a full queue is 503, as a server that drains or has lost a worker is.
  explicit ApiError(const Error& error, std::string param = "");

  int status() const { return status_; }
  const char* what() const noexcept override { return message_.c_str(); }
  std::string json() const;
  /// 503 comes with Retry-After.
  HttpResponse response() const;

 private:
  int status_;
  std::string type_, message_, param_;
};

/// 400 for a field whose value is not allowed, or is not served.
[[noreturn]] void refuse(const std::string& param, const std::string& message);
/// 400 for a body that has not the form of a request: no JSON, a missing field, a value of another kind.
[[noreturn]] void refuse_form(const std::string& param, const std::string& message);

/// Returns what the exception that is being handled means to a client.
ApiError current_error();

}  // namespace ferry::api

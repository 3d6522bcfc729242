#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/schedule/request.h"
#include "runtime/server/api/answer.h"
#include "runtime/server/api/api_error.h"
#include "runtime/server/api/generation_fields.h"
#include "runtime/server/http/router.h"
#include "runtime/server/prompt_pools.h"
#include "runtime/server/prompt_task.h"

namespace ferry::api {

/// A call that the engine can take.
struct PreparedCall {
  std::vector<Request> requests;  // one for each choice, in order
  std::unique_ptr<Answer> answer;
};

/// A call whose body has been read: what one route of the API has to do for an answer.
class ApiTask {
 public:
  virtual ~ApiTask() = default;

  virtual const GenerationFields& generation() const = 0;
  /// The step that prepare() is, without the key.
  virtual PromptStep step(const ServerLimits& limits) const = 0;
  /// Makes prompts. Takes time; throws ApiError, Error and what task.check_in throws. Called once.
  virtual PreparedCall prepare(const PromptTask& task) = 0;
};

/// Reads a request. Throws ApiError.
using ReadTask = std::function<std::unique_ptr<ApiTask>(const HttpRequest& request)>;

/// How an API says that something is wrong.
struct ErrorForm {
  HttpResponse (*response)(const ApiError& error);
  std::string (*stream_end)(const ApiError& error);  // of a stream whose head has left
  HttpRewording reword = nullptr;                    // of what the server refuses before the call is one
};

}  // namespace ferry::api

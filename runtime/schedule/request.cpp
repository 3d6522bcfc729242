#include "runtime/schedule/request.h"

#include "runtime/base/error.h"

namespace ferry {

const char* finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone: return "";
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kAborted: return "abort";
    case FinishReason::kDeadline: return "deadline";
    case FinishReason::kError: return "error";
  }
  return "";
}

void throw_taken_id(const std::string& request_id) {
  throw_invalid("request_id '" + request_id + "' belongs to another open request of yours; allowed: a new one, or none");
}

void throw_draining() { throw Error(ErrorCode::kUnavailable, "the server is shutting down and takes no more requests"); }

}  // namespace ferry

#include "runtime/server/status.h"

#include <exception>
#include <new>
#include <string>

#include "runtime/base/out_of_memory.h"

namespace ferry {
namespace {

grpc::StatusCode status_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::kCancelled: return grpc::StatusCode::CANCELLED;
    case ErrorCode::kInvalidArgument: return grpc::StatusCode::INVALID_ARGUMENT;
    case ErrorCode::kDeadlineExceeded: return grpc::StatusCode::DEADLINE_EXCEEDED;
    case ErrorCode::kNotFound: return grpc::StatusCode::NOT_FOUND;
    case ErrorCode::kResourceExhausted: return grpc::StatusCode::RESOURCE_EXHAUSTED;
    case ErrorCode::kFailedPrecondition: return grpc::StatusCode::FAILED_PRECONDITION;
    case ErrorCode::kAborted: return grpc::StatusCode::ABORTED;
    case ErrorCode::kUnimplemented: return grpc::StatusCode::UNIMPLEMENTED;
    case ErrorCode::kInternal: return grpc::StatusCode::INTERNAL;
    case ErrorCode::kUnavailable: return grpc::StatusCode::UNAVAILABLE;
  }
  return grpc::StatusCode::UNKNOWN;
}

}  // namespace

grpc::Status to_status(const Error& error) { return {status_code(error.code()), error.what()}; }

grpc::Status current_status() {
  try {
    throw;
  } catch (const Error& error) {
    return to_status(error);
  } catch (const std::bad_alloc&) {
    return {grpc::StatusCode::RESOURCE_EXHAUSTED, out_of_memory().what()};
  } catch (const std::exception& error) {
    return {grpc::StatusCode::INTERNAL, one_line(error.what())};
  }
}

grpc::Status status_of(const GenerateEvent& event) {
  // One that its caller did not name has no name while its prompt is made.
  const std::string name = event.request_id.empty() ? "the request" : "request '" + event.request_id + "'";
  switch (event.finish_reason) {
    case FinishReason::kAborted: return {grpc::StatusCode::CANCELLED, name + " was aborted"};
    case FinishReason::kDeadline:
      return {grpc::StatusCode::DEADLINE_EXCEEDED, "the deadline of request '" + event.request_id + "' passed after " +
                                                       std::to_string(event.completion_tokens) + " tokens"};
    case FinishReason::kError:
      return event.error ? to_status(*event.error) : grpc::Status(grpc::StatusCode::INTERNAL, "the engine failed");
    default: return grpc::Status::OK;
  }
}

}  // namespace ferry

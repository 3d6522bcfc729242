#pragma once

#include <grpcpp/grpcpp.h>

#include <exception>

#include "runtime/server/caller.h"
#include "runtime/server/status.h"

namespace ferry {

/// Runs `answer` if the caller may call, and turns what it throws into a status.
template <class Answer>
grpc::Status answer_with(const grpc::ServerContext& context, const ApiKeys& keys, Answer&& answer) {
  if (const Caller caller = identify_caller(context, keys); !caller.status.ok()) return caller.status;
  try {
    answer();
    return grpc::Status::OK;
  } catch (const Error& error) {
    return to_status(error);
  } catch (const std::exception& error) {
    return {grpc::StatusCode::INTERNAL, error.what()};
  }
}

}  // namespace ferry

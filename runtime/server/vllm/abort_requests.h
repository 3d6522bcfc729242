#pragma once

#include <google/protobuf/repeated_field.h>
#include <grpcpp/grpcpp.h>

#include <string>

#include "runtime/server/vllm/services.h"

namespace ferry::vllm {

/// Ends a call whose response is filled in.
grpc::ServerUnaryReactor* answer(grpc::CallbackServerContext& context, const grpc::Status& status);

/// Answers Abort of either service: those of the caller's own requests that are open end, the others are none of its business.
grpc::ServerUnaryReactor* abort_requests(grpc::CallbackServerContext& context, const ServiceContext& service,
                                         const google::protobuf::RepeatedPtrField<std::string>& ids);

}  // namespace ferry::vllm

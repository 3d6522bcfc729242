#pragma once

#include <string>
#include <vector>

#include "grpc/reflection/v1/reflection.pb.h"

namespace ferry {

/// Answers one question about the services of this process. `services` are the full names that it lists. Their files are those
/// of protobuf's generated pool. What is not there is answered by an error inside the response. Any thread may call it.
grpc::reflection::v1::ServerReflectionResponse answer_reflection(const grpc::reflection::v1::ServerReflectionRequest& request,
                                                                 const std::vector<std::string>& services);

}  // namespace ferry

#pragma once

#include <memory>
#include <string>
#include <vector>

namespace grpc {
class Service;
}

namespace ferry {

/// Server reflection, v1 and v1alpha, which lists `services` by their full names.
///
/// gRPC's own service parses whatever is sent, so that a message of 60 MB takes gigabytes. This one parses no message of more
/// than `kReflectionBytes`: such a message ends its call with RESOURCE_EXHAUSTED. It takes no thread while a client is silent.
std::shared_ptr<grpc::Service> make_reflection_service(std::vector<std::string> services);

constexpr int kReflectionBytes = 4096;

}  // namespace ferry

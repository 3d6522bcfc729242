#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace grpc {
class Service;
}

namespace ferry {

/// `service`, but a message that would take more than `most` bytes once it is parsed (ParsedBytes) ends its call with
/// RESOURCE_EXHAUSTED and is not parsed. gRPC parses before it asks anybody, so before keys are looked at, and bounds only
/// what is sent.
///
/// `name` is the service's full name; each of its methods takes one message. Methods are served as they were, by threads or by
/// callbacks. The result must outlive the server that it is registered with, and keeps `service`.
std::shared_ptr<grpc::Service> bounded_service(std::shared_ptr<grpc::Service> service, const std::string& name, int64_t most);

}  // namespace ferry

#pragma once

#include <memory>

#include "runtime/server/access.h"

namespace grpc {
class Service;
}

namespace ferry {

class ProfileControl;

/// Its fully qualified name.
inline constexpr const char* kProfileServiceName = "ferry.v1.Profile";

/// The ferry.v1.Profile service (proto/ferry/v1/profile.proto): only translates. Without a valid key (if there are keys) every
/// method is UNAUTHENTICATED. `control` and `keys` must outlive the server that it is registered with.
std::shared_ptr<grpc::Service> make_profile_service(ProfileControl& control, const ApiKeys& keys);

}  // namespace ferry

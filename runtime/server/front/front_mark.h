#pragma once

#include <grpcpp/server_context.h>

#include <string>
#include <string_view>

#include "runtime/server/http/message.h"

namespace ferry {

/// What a front writes on every call that it passes on, so that it knows those that come back to it, by whatever way: a `Via`
/// header, or metadata of that name (RFC 9110 §7.6.3), with a name that no other front has.
class FrontMark {
 public:
  static constexpr const char* kName = "via";

  FrontMark();

  /// "1.1 ferry-front-…".
  const std::string& value() const { return value_; }
  bool is_on(const HttpHeaders& headers) const;
  bool is_on(const grpc::ServerContextBase& call) const;

 private:
  const std::string value_;
};

/// What a call is answered that has come back.
inline constexpr int kLoopDetected = 508;  // RFC 5842 §7.2
inline constexpr const char* kLoopMessage =
    "this call has come back to the front that passed it on: a --coordinator leads to that front; allowed: ports of ferry "
    "serve";

}  // namespace ferry

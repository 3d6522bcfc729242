#pragma once

#include <memory>
#include <string>

#include "runtime/base/clock.h"
#include "runtime/options/front_options.h"
#include "runtime/server/access.h"
#include "runtime/server/front/front_times.h"

namespace ferry {

/// One HTTP port and one gRPC port before several coordinators (`ferry serve`), among which calls are spread by session, cached
/// prompt and load: README.md of this folder. It needs neither a model nor ranks, so any process may have one:
///
///   FrontOptions options{.coordinators = {{"127.0.0.1:8001", "127.0.0.1:50052"}, {"127.0.0.1:8002", "127.0.0.1:50053"}}};
///   Front front(options, load_access(options.access));
///   … front.http_address() …
///   front.stop();
///
/// Any thread may call any method.
class Front {
 public:
  /// Has looked at all coordinators once, and listens, when it returns; that none of them serves yet is no error. `access`
  /// counts in place of what options.access names. Throws Error{kInvalidArgument} for no or too many coordinators, an address
  /// that is not HOST:PORT, a coordinator's port 0 and TLS files that cannot be used, Error{kFailedPrecondition} if a port
  /// cannot be listened on.
  ///
  /// `clock`, which must outlive the front, is that of the looks and of options.lost_after_s.
  Front(const FrontOptions& options, const Access& access, const FrontTimes& times = {}, Clock& clock = real_clock());
  /// As stop().
  ~Front();
  Front(const Front&) = delete;
  Front& operator=(const Front&) = delete;

  /// HOST:PORT with the port that is really used; empty where it is off.
  const std::string& http_address() const;
  const std::string& grpc_address() const;

  /// Takes no more calls, and returns when the open ones have ended, or FrontOptions::drain_timeout_s have passed: what is open
  /// then is cut off. Another call of it returns when the first one does.
  void stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry

#pragma once

#include <string>

#include "runtime/options/access_options.h"
#include "runtime/options/api_options.h"
#include "runtime/options/prefix_cache_scope.h"
#include "runtime/options/server_limits.h"
#include "runtime/options/step_archive_options.h"

namespace CLI {
class App;
}

namespace ferry {

/// Form of the lines that serve writes for requests that have ended.
enum class RequestLogForm { kOff, kText, kJson };

struct ServeOptions {
  std::string grpc_address = "127.0.0.1:50051";  // "off": no gRPC
  std::string http_address = "127.0.0.1:8000";   // "off": no HTTP
  StepArchiveOptions archive;                    // captures stay below its folder; if given, also a lost rank's last steps
  double drain_timeout_s = 30;
  AccessOptions access;
  PrefixCacheScope prefix_cache_scope = PrefixCacheScope::kShared;  // kKey: there is a key
  ApiOptions api;
  std::string otlp_endpoint;      // of a collector, http[s]://HOST[:PORT][/PATH]; empty: no spans are made
  std::string otlp_service_name;  // that spans carry
  RequestLogForm log_requests = RequestLogForm::kOff;
  std::string remote_images;  // as given, HOST[:PORT],…; limits.picture_hosts once it was read
  ServerLimits limits;
};

/// Adds the options of `ferry serve`: ports, captures, who may use the ports, and every bound of ServerLimits.
void add_serve_options(CLI::App& app, ServeOptions& options);

struct EngineOptions;

/// What no single option can tell: of `engine` it looks at --elastic and --coordinators. Empty if all is well.
std::string check_together(const ServeOptions& options, const EngineOptions& engine);

}  // namespace ferry

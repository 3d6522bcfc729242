#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "runtime/options/access_options.h"
#include "runtime/options/api_options.h"
#include "runtime/options/server_limits.h"

namespace CLI {
class App;
}

namespace ferry {

struct ServeOptions {
  std::string grpc_address = "127.0.0.1:50051";
  std::string http_address = "127.0.0.1:8000";      // "off": no HTTP
  std::optional<std::filesystem::path> trace_dir;   // that captures stay below; if given, also for a lost rank's last steps
  int64_t trace_sample = 0;                         // one step in so many is kept; 0: none
  int64_t trace_sample_bytes = int64_t{256} << 20;  // of kept steps on disk
  double drain_timeout_s = 30;
  AccessOptions access;
  ApiOptions api;
  std::string otlp_endpoint;      // of a collector, http[s]://HOST[:PORT][/PATH]; empty: no spans are made
  std::string otlp_service_name;  // that spans carry
  std::string remote_images;      // as given, HOST[:PORT],…; limits.picture_hosts once it was read
  ServerLimits limits;
};

/// Adds the options of `ferry serve`: ports, captures, who may use the ports, and every bound of ServerLimits.
void add_serve_options(CLI::App& app, ServeOptions& options);

struct EngineOptions;

/// What no single option can tell: of `engine` it looks at --elastic and --coordinators. Empty if all is well.
std::string check_together(const ServeOptions& options, const EngineOptions& engine);

}  // namespace ferry

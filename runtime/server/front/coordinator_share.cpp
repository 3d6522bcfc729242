#include "runtime/server/front/coordinator_share.h"

#include "runtime/base/error.h"
#include "runtime/net/host_port.h"

namespace ferry {
namespace {

/// The port so much behind that of an option, on another host if one is named.
std::string behind(const std::string& option, const std::string& address, int steps, const std::string& host) {
  const HostPort place = parse_host_port(option, address);
  return (host.empty() ? place.host : host) + ":" + std::to_string(place.port == 0 ? 0 : place.port + steps);
}

}  // namespace

Options share_of(Options options, const CoordinatorSeat& seat) {
  if (seat.count == 1) return options;
  const int index = seat.index;
  ServeOptions& serve = options.serve;
  const bool has_tls = !serve.access.tls_cert.empty();
  if (has_tls && !seat.host.empty())
    throw_invalid("--tls-cert with --coordinators on several hosts, between which calls would travel without; allowed: on one");
  if (has_tls) serve.access.tls_cert = serve.access.tls_key = serve.access.tls_client_ca = "";
  const std::string host = has_tls ? "127.0.0.1" : seat.host;
  serve.http_address = behind("--http", serve.http_address, 1 + index, host);
  if (serve.grpc_address != "off") serve.grpc_address = behind("--grpc", serve.grpc_address, 1 + index, host);
  if (serve.archive.trace_dir) *serve.archive.trace_dir /= "coordinator-" + std::to_string(index);
  std::string& elastic = options.engine.elastic.address;
  if (elastic.starts_with("unix:")) {
    elastic += "-" + std::to_string(index);
  } else if (!elastic.empty()) {
    elastic = behind("--elastic", elastic, index, "");
  }
  if (index > 0 && !options.engine.expert_load.empty()) options.engine.expert_load += "." + std::to_string(index);
  return options;
}

}  // namespace ferry

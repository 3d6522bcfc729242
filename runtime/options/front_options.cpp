#include "runtime/options/front_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "runtime/net/host_port.h"
#include "runtime/net/hosts.h"
#include "runtime/options/option_checks.h"
#include "runtime/options/port_span.h"

namespace ferry {
namespace {

/// HTTP[,GRPC].
CoordinatorAddress parse_coordinator(const std::string& text) {
  const std::size_t comma = std::min(text.find(','), text.size());
  return {.http = text.substr(0, comma), .grpc = comma == text.size() ? "" : text.substr(comma + 1)};
}

std::string check_coordinator(const std::string& text) {
  const CoordinatorAddress address = parse_coordinator(text);
  const bool lacks_grpc = address.grpc.empty() && text.find(',') != std::string::npos;
  const bool has_more = address.grpc.find(',') != std::string::npos;
  if (address.http.empty() || lacks_grpc || has_more)
    return complaint(text, "HOST:PORT of HTTP, or HOST:PORT,HOST:PORT of HTTP and gRPC");
  return "";
}

bool has_grpc(const FrontOptions& options) {
  return options.grpc_address != "off" &&
         std::ranges::any_of(options.coordinators, [](const CoordinatorAddress& each) { return !each.grpc.empty(); });
}

/// The front's own ports, by option.
std::vector<PortSpan> own_ports(const FrontOptions& options) {
  std::vector<PortSpan> ports;
  if (options.http_address != "off") ports.push_back({.option = "--http", .address = options.http_address});
  if (has_grpc(options)) ports.push_back({.option = "--grpc", .address = options.grpc_address});
  return ports;
}

/// Whether whoever calls `address` comes to the front's own `port`, as far as names tell; other ways back to it show when calls
/// come that it has passed on (FrontMark).
bool leads_to(const std::string& address, const PortSpan& port) {
  const HostPort place = parse_host_port("--coordinator", address), own = parse_host_port(port.option, port.address);
  return place.port == own.port && own.port != 0 && reaches_listener(place.host, own.host);
}

std::string check_front_ports(const FrontOptions& options) {
  const std::vector<PortSpan> own = own_ports(options);
  if (std::string complaint = check_ports(own); !complaint.empty()) return complaint;
  for (const CoordinatorAddress& coordinator : options.coordinators) {
    for (const std::string& address : {coordinator.http, coordinator.grpc}) {
      if (address.empty()) continue;
      if (std::string complaint = check_ports({{PortSpan{"--coordinator", address}}}); !complaint.empty()) return complaint;
      const auto met = std::ranges::find_if(own, [&](const PortSpan& port) { return leads_to(address, port); });
      if (met == own.end()) continue;
      return "--coordinator: '" + address + "' is this front's own " + met->option + " " + met->address +
             "; allowed: ports of ferry serve";
    }
  }
  return "";
}

}  // namespace

void add_front_options(CLI::App& app, FrontOptions& options) {
  app.add_option_function<std::vector<std::string>>(
         "--coordinator",
         [&options](const std::vector<std::string>& all) {
           for (const std::string& each : all) options.coordinators.push_back(parse_coordinator(each));
         },
         "HTTP[,GRPC]: HOST:PORT of a coordinator's HTTP port and, if it shall have calls over gRPC, of its gRPC port; may be "
         "given several times")
      ->required()
      ->allow_extra_args(false)
      ->check(check_coordinator);
  app.add_option("--http", options.http_address,
                 "HOST:PORT to serve HTTP on, or off; port 0 chooses one; default 127.0.0.1:8000");
  app.add_option(
      "--grpc", options.grpc_address,
      "HOST:PORT to serve gRPC on, or off, as it is where no --coordinator names a gRPC port; default 127.0.0.1:50051");
  app.add_option("--drain-timeout", options.drain_timeout_s, "seconds that open calls get after SIGTERM; default 30")
      ->check(number_in(0.0, 86400.0, "0 to 86400 seconds"));
  app.add_option("--lost-after", options.lost_after_s,
                 "seconds without an answer to a look at its health until a coordinator's open calls are given up; default 10")
      ->check(number_in(1.0, 86400.0, "1 to 86400 seconds"));
  add_access_options(app, options.access);
  add_port_limits(app, options.limits);
}

std::string check_together(const FrontOptions& options) {
  if (options.coordinators.size() > FrontOptions::kMaxCoordinators) {
    return "--coordinator: given " + std::to_string(options.coordinators.size()) + " times; allowed: at most " +
           std::to_string(FrontOptions::kMaxCoordinators);
  }
  for (auto each = options.coordinators.begin(); each != options.coordinators.end(); ++each) {
    const bool is_twice = std::any_of(options.coordinators.begin(), each,
                                      [&](const CoordinatorAddress& other) { return other.http == each->http; });
    if (is_twice) return "--coordinator: " + complaint(each->http, "each coordinator once");
  }
  if (std::string complaint = check_front_ports(options); !complaint.empty()) return complaint;
  if (options.http_address == "off" && options.grpc_address == "off")
    return "--http, --grpc: both are off; allowed: one of them";
  if (options.http_address == "off" &&
      std::ranges::all_of(options.coordinators, [](const auto& each) { return each.grpc.empty(); }))
    return "--http: off, and no --coordinator has a gRPC port; allowed: one of them";
  return check_together(options.access);
}

}  // namespace ferry

#include "runtime/options/front_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "runtime/options/option_checks.h"

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
  if (options.http_address == "off" && options.grpc_address == "off")
    return "--http, --grpc: both are off; allowed: one of them";
  if (options.http_address == "off" &&
      std::ranges::all_of(options.coordinators, [](const auto& each) { return each.grpc.empty(); }))
    return "--http: off, and no --coordinator has a gRPC port; allowed: one of them";
  return check_together(options.access);
}

}  // namespace ferry

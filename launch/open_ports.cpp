#include "launch/open_ports.h"

#include <utility>

#include "runtime/server/anthropic/message_error.h"
#include "runtime/server/loading_routes.h"

namespace ferry {

OpenPorts open_ports(const PortAddresses& addresses, const ServerLimits& limits, const Access& access, HttpObserver observe,
                     const LoadProgress& progress) {
  OpenPorts ports;
  if (addresses.grpc != "off") {
    ports.grpc = std::make_unique<GrpcDoor>(addresses.grpc, limits);
    ports.grpc->refuse_until_open();
  }
  if (addresses.http != "off") {
    const auto probe = [&progress] {
      const LoadProgress::State state = progress.state();
      return LoadingState{.done_bytes = state.done_bytes, .total_bytes = state.total_bytes, .elapsed_s = state.elapsed_s};
    };
    const HttpRewording anthropic = api::anthropic::message_errors().reword;
    HttpRouter router;
    add_loading_routes(router, probe, {{"/v1/messages", anthropic}, {"/messages", anthropic}});
    const HttpServerOptions server{.address = addresses.http, .limits = limits, .observe = std::move(observe)};
    ports.http = std::make_unique<HttpServer>(server, access, std::move(router));
  }
  return ports;
}

}  // namespace ferry

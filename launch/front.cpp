#include "runtime/server/front/front.h"

#include <csignal>
#include <cstdio>

#include "launch/commands.h"
#include "runtime/server/access.h"
#include "runtime/server/descriptor_limit.h"

namespace ferry {
namespace {

/// Says where a port is, and if anybody may use it.
void announce_front(const char* port, const std::string& address, const Access& access) {
  if (address.empty()) return;
  if (const auto warning = open_port_warning(port, address, access))
    std::fprintf(stderr, "ferry: warning: %s\n", warning->c_str());
  std::fprintf(stderr, "ferry: serving %s on %s\n", port, address.c_str());
}

/// Both signals are blocked in every thread.
void wait_for_termination() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  int signal = 0;
  while (sigwait(&set, &signal) != 0) {
  }
}

}  // namespace

int run_front(const FrontOptions& options) {
  const Access access = load_access(options.access);
  raise_descriptor_limit();
  Front front(options, access);
  announce_front("http", front.http_address(), access);
  announce_front("grpc", front.grpc_address(), access);
  wait_for_termination();
  std::fprintf(stderr, "ferry: draining\n");
  front.stop();
  return 0;
}

}  // namespace ferry

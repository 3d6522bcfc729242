#include "runtime/server/front/front.h"

#include <csignal>
#include <cstdio>

#include "launch/announce.h"
#include "launch/commands.h"
#include "runtime/server/access.h"
#include "runtime/server/descriptor_limit.h"

namespace ferry {
namespace {

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
  Access access = load_access(options.access);
  allow_own_hosts(access, options.http_address);
  raise_descriptor_limit();
  Front front(options, access);
  announce("", "http", front.http_address(), access);
  announce("", "grpc", front.grpc_address(), access);
  wait_for_termination();
  std::fprintf(stderr, "ferry: draining\n");
  front.stop();
  return 0;
}

}  // namespace ferry

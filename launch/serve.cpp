#include <csignal>
#include <cstdio>
#include <thread>

#include "launch/commands.h"
#include "runtime/base/error.h"
#include "runtime/coordinator.h"
#include "runtime/engine.h"
#include "runtime/model/chat_template.h"
#include "runtime/server/access.h"
#include "runtime/server/descriptor_limit.h"
#include "runtime/server/grpc_server.h"
#include "runtime/server/http_server.h"
#include "runtime/server/profile_control.h"

namespace ferry {
namespace {

constexpr timespec kPollPeriod{0, 50'000'000};           // between looks at the engine's health
constexpr std::chrono::milliseconds kFailureGrace{500};  // for last messages to leave after a failure

/// Waits for SIGTERM or SIGINT (true) or for the engine's failure (false). Both signals are blocked in every thread.
bool wait_for_signal(const Coordinator& coordinator) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  while (!coordinator.failure()) {
    if (sigtimedwait(&set, nullptr, &kPollPeriod) > 0) return true;
  }
  return false;
}

}  // namespace

int run_serve(const Options& options, Cluster& cluster) {
  const Access access = load_access(options.serve.access);
  raise_descriptor_limit();
  Engine engine(options.engine, cluster);
  const Tokenizer& tokenizer = engine.require_tokenizer();
  const ChatTemplate chat_template = ChatTemplate::load(options.engine.model);
  Coordinator coordinator(engine);
  const Cluster::LossWatch watch(cluster, [&](const std::string& reason) { coordinator.fail(reason); });
  CoordinatorBackend backend(coordinator, tokenizer, chat_template);
  ProfileControl profile(coordinator, options.serve.trace_dir.value_or("traces"), options.serve.trace_dir.has_value());
  GrpcServer server({.address = options.serve.grpc_address, .limits = options.serve.limits, .access = access}, backend,
                    &profile);
  std::optional<HttpServer> http;
  if (options.serve.http_address != "off") http.emplace(options.serve.http_address, profile);
  coordinator.set_on_failure([&] { server.set_serving(false); });
  if (http) std::fprintf(stderr, "ferry: serving http on %s\n", http->address().c_str());
  std::fprintf(stderr, "ferry: serving grpc on %s\n", server.address().c_str());
  if (const auto warning = open_port_warning("grpc", server.address(), access))
    std::fprintf(stderr, "ferry: warning: %s\n", warning->c_str());

  const bool asked_to_leave = wait_for_signal(coordinator);
  server.set_serving(false);
  if (asked_to_leave) {
    std::fprintf(stderr, "ferry: draining\n");
    coordinator.drain(std::chrono::milliseconds(static_cast<int64_t>(options.serve.drain_timeout_s * 1e3)));
  }
  coordinator.set_on_failure({});
  server.shutdown(kFailureGrace);
  const std::optional<Error> failure = coordinator.failure();
  if (failure) throw *failure;
  return 0;
}

}  // namespace ferry

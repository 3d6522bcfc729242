#include "runtime/options/serve_options.h"

#include <CLI/CLI.hpp>

#include "runtime/options/engine_options.h"
#include "runtime/options/option_checks.h"
#include "runtime/options/option_kinds.h"
#include "runtime/options/port_span.h"

namespace ferry {
namespace {

/// The front of several coordinators has the ports that are given, and they have those behind (share_of).
std::string check_listeners(const ServeOptions& options, const EngineOptions& engine) {
  const int coordinators = engine.sharing.coordinators;
  const int behind_front = coordinators == 1 ? 0 : coordinators;
  const std::string host = options.access.tls_cert.empty() ? "" : "127.0.0.1";
  std::vector<PortSpan> spans;
  if (options.http_address != "off") spans.push_back({"--http", options.http_address, behind_front, host, coordinators});
  if (options.grpc_address != "off") spans.push_back({"--grpc", options.grpc_address, behind_front, host, coordinators});
  if (std::optional<PortSpan> elastic = ports_of(engine.elastic, coordinators)) spans.push_back(*std::move(elastic));
  return check_ports(spans);
}

}  // namespace

void add_serve_options(CLI::App& app, ServeOptions& options) {
  app.add_option("--grpc", options.grpc_address,
                 "HOST:PORT to serve gRPC on, or off; port 0 chooses one; default 127.0.0.1:50051");
  app.add_option("--http", options.http_address,
                 "HOST:PORT for OpenAI's and Anthropic's APIs, a page that shows the job at /, GET /health and /metrics, POST "
                 "/start_profile and /stop_profile, or off; default 127.0.0.1:8000");
  add_step_archive_options(
      app, options.archive,
      "folder that all captures stay below (default traces); if given, also for the last steps before a rank was lost");
  app.add_option("--otlp-traces-endpoint", options.otlp_endpoint,
                 "http[s]://HOST[:PORT][/PATH] of a collector that gets a span of each request, as OTLP's JSON; without a path "
                 "/v1/traces; the environment's OTEL_SERVICE_NAME names the service (ferry); default: none")
      ->check(
          [](const std::string& url) { return url.empty() ? complaint(url, "http[s]://HOST[:PORT][/PATH]") : std::string(); });
  add_choice<RequestLogForm>(
      app, "--log-requests", {{"off", RequestLogForm::kOff}, {"text", RequestLogForm::kText}, {"json", RequestLogForm::kJson}},
      [&options](RequestLogForm form) { options.log_requests = form; },
      "a line on standard output for each request that has ended, never with its prompt or answer: off, text or json; default "
      "off");
  app.add_option("--allow-remote-images", options.remote_images,
                 "HOST[:PORT],… that requests may name pictures of, which are then fetched; never from private addresses; "
                 "default: none")
      ->check([](const std::string& hosts) { return hosts.empty() ? "an empty list; allowed: HOST[:PORT],…" : ""; });
  app.add_option("--drain-timeout", options.drain_timeout_s, "seconds that open requests get after SIGTERM; default 30")
      ->check(number_in(0.0, 86400.0, "0 to 86400 seconds"));
  add_api_options(app, options.api);
  add_access_options(app, options.access);
  add_choice<PrefixCacheScope>(
      app, "--prefix-cache-scope", {{"shared", PrefixCacheScope::kShared}, {"key", PrefixCacheScope::kKey}},
      [&options](PrefixCacheScope scope) { options.prefix_cache_scope = scope; },
      "who finds the cached beginning of a prompt: shared (every caller, so a prompt's time tells one caller what others have "
      "asked) or key (those with the API key that it came with); default shared")
      ->group("Who may use the ports");
  add_server_limits(app, options.limits);
}

std::string check_together(const ServeOptions& options, const EngineOptions& engine) {
  if (engine.sharing.coordinators > 1 && options.http_address == "off")
    return "--http off with --coordinators; allowed: HOST:PORT";
  if (options.http_address == "off" && options.grpc_address == "off")
    return "--http, --grpc: both are off; allowed: one of them";
  if (std::string complaint = check_together(options.archive, engine); !complaint.empty()) return complaint;
  if (std::string complaint = check_listeners(options, engine); !complaint.empty()) return complaint;
  const bool has_key = !options.access.api_key_file.empty() || options.access.api_key.has_value();
  if (options.prefix_cache_scope == PrefixCacheScope::kKey && !has_key)
    return "--prefix-cache-scope: key, but callers need no key; allowed: key with --api-key-file or FERRY_API_KEY, or shared";
  return check_together(options.access);
}

}  // namespace ferry

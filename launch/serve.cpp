#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "launch/announce.h"
#include "launch/commands.h"
#include "launch/job_front.h"
#include "launch/step_archive.h"
#include "launch/traced_run.h"
#include "profiler/recent_activity.h"
#include "profiler/recorder.h"
#include "runtime/base/error.h"
#include "runtime/base/timeout_factor.h"
#include "runtime/cluster/exit_guard.h"
#include "runtime/coordinator.h"
#include "runtime/engine.h"
#include "runtime/server/access.h"
#include "runtime/server/anthropic/message_routes.h"
#include "runtime/server/api/api_service.h"
#include "runtime/server/capture_source.h"
#include "runtime/server/descriptor_limit.h"
#include "runtime/server/front/coordinator_share.h"
#include "runtime/server/grpc_server.h"
#include "runtime/server/health_route.h"
#include "runtime/server/http/http_server.h"
#include "runtime/server/http/tls_check.h"
#include "runtime/server/live/live_routes.h"
#include "runtime/server/metrics/engine_metrics.h"
#include "runtime/server/metrics/http_metrics.h"
#include "runtime/server/metrics/metrics_route.h"
#include "runtime/server/openai/openai_routes.h"
#include "runtime/server/otlp/request_spans.h"
#include "runtime/server/picture_address.h"
#include "runtime/server/profile_control.h"
#include "runtime/server/profile_routes.h"
#include "runtime/text/chat_template.h"
#include "runtime/version.h"

namespace ferry {
namespace {

constexpr timespec kPollPeriod{0, 50'000'000};           // between looks at the engine's health
constexpr std::chrono::milliseconds kFailureGrace{500};  // for last messages to leave after a failure
constexpr std::chrono::seconds kServersStart{20};        // which takes milliseconds
constexpr double kRecentSeconds = 5;                     // that the live view looks back
constexpr std::size_t kShownRequests = 64;               // of those that are open, the oldest

/// Waits for SIGTERM, SIGINT or the first coordinator's word (true), or for the engine's failure (false). Both signals are
/// blocked in every thread.
bool wait_for_signal(const Coordinator& coordinator, CoordinatorLinks* others) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  while (!coordinator.failure()) {
    if (sigtimedwait(&set, nullptr, &kPollPeriod) > 0) return true;
    if (others != nullptr && others->is_told_to_leave()) return true;
  }
  return false;
}

/// What health checks say: an engine that goes on serves, until it drains or has failed. Any thread may call any method.
class ServingState {
 public:
  explicit ServingState(GrpcServer& server) : server_(server) {}

  /// `complaint`: why the engine is overdue, nothing if it goes on.
  void set_overdue(std::optional<std::string> complaint) {
    const std::scoped_lock lock(mutex_);
    if (!has_ended_) tell(std::move(complaint));
  }
  void end() {
    const std::scoped_lock lock(mutex_);
    has_ended_ = true;
    tell("the engine takes no requests: it drains, or has failed");
  }
  /// Why nothing is served, nothing while it is.
  std::optional<std::string> complaint() const {
    const std::scoped_lock lock(mutex_);
    return complaint_;
  }

 private:
  void tell(std::optional<std::string> complaint) {
    complaint_ = std::move(complaint);
    server_.set_serving(!complaint_);
  }

  GrpcServer& server_;
  mutable std::mutex mutex_;
  std::optional<std::string> complaint_;
  bool has_ended_ = false;
};

/// The name that answers give the model.
std::string model_name_of(const ServeOptions& options, const ModelInfo& model) {
  return options.api.model_names.empty() ? model.name : options.api.model_names.front();
}

/// Spans of requests, where a collector is to get them.
class Tracing {
 public:
  /// `url` is empty where there is none.
  Tracing(const std::string& url, const ServeOptions& options, const ModelInfo& model) {
    if (url.empty()) return;
    exporter_.emplace(SpanSource{.service_name = options.otlp_service_name, .service_version = version_number()},
                      http_sender(url));
    spans_.emplace(*exporter_, model_name_of(options, model));
  }
  RequestSpans* spans() { return spans_ ? &*spans_ : nullptr; }
  std::optional<SpanCount> count() const { return exporter_ ? std::optional(exporter_->count()) : std::nullopt; }

 private:
  std::optional<SpanExporter> exporter_;
  std::optional<RequestSpans> spans_;
};

EngineReport report_of(const Coordinator& coordinator, const Tracing& tracing, const ArchiveKeeper* archive) {
  return {.load = coordinator.load(),
          .stats = coordinator.stats(),
          .model = coordinator.model_info(),
          .workers = coordinator.workers(),
          .archive = archive == nullptr ? std::nullopt : std::optional(archive->status()),
          .spans = tracing.count()};
}

/// What health checks over HTTP tell.
Health health_of(const Coordinator& coordinator, const ServingState& state) {
  Health health{.complaint = state.complaint()};
  for (const WorkerSight& worker : coordinator.workers().missing())
    health.missing.push_back({.rank = worker.rank, .state = worker_state_name(worker.state), .reason = worker.reason});
  return health;
}

/// What the live view shows; `start` is when the server did.
LiveStatus look(const EngineReport& report, const Coordinator& coordinator, const ServingState& state,
                std::chrono::steady_clock::time_point start) {
  using Seconds = std::chrono::duration<double>;
  const double uptime_s = Seconds(std::chrono::steady_clock::now() - start).count();
  return make_live_status(report, coordinator.oldest_requests(kShownRequests),
                          look_back(recorder(), std::min(kRecentSeconds, uptime_s)),
                          {.time = Seconds(std::chrono::system_clock::now().time_since_epoch()).count(),
                           .uptime_s = uptime_s,
                           .complaint = state.complaint().value_or("")});
}

/// Nothing if HTTP is off.
std::optional<HttpServer> open_http(const ServeOptions& options, const Access& access, ProfileControl& profile,
                                    api::ApiService& apis, HealthProbe health, EngineReporter report,
                                    const std::string& model_name, HttpMetrics& metrics, LiveFeed& live) {
  if (options.http_address == "off") return std::nullopt;
  HttpRouter router;
  api::openai::add_openai_routes(router, apis.context());
  api::anthropic::add_message_routes(router, apis.context());
  add_health_route(router, std::move(health));
  add_profile_routes(router, profile);
  add_live_routes(router, live);
  add_metrics_route(router, std::move(report), model_name, metrics);
  const HttpServerOptions server{.address = options.http_address, .limits = options.limits, .observe = metrics.observer()};
  return std::optional<HttpServer>(std::in_place, server, access, std::move(router));
}

ServerLimits limits_of(const ServeOptions& options) {
  ServerLimits limits = options.limits;
  if (!options.remote_images.empty()) limits.picture_hosts = parse_remote_hosts(options.remote_images);
  return limits;
}

Access access_of(const ServeOptions& options) {
  Access access = load_access(options.access);
  allow_own_hosts(access, options.http_address);
  return access;
}

/// Returns this coordinator's share of `given`, with the policy of a server that has these keys.
Options own_options(const Options& given, const CoordinatorLinks* others, const Access& access) {
  Options options =
      others == nullptr ? given : share_of(given, {.index = others->index(), .count = others->count(), .host = others->host()});
  options.engine.policy.policy = policy_for(options.engine.policy, access.keys.size());
  return options;
}

/// Of several coordinators this one's name, with which its lines begin.
std::string name_of(const CoordinatorLinks* others) {
  return others == nullptr ? "" : "coordinator " + std::to_string(others->index()) + ": ";
}

/// The first coordinator's front, if there are several, and where it is.
std::unique_ptr<Front> open_front(const ServeOptions& given, const Access& access, CoordinatorLinks* others,
                                  const CoordinatorLinks::Ports& own) {
  if (others == nullptr) return nullptr;
  std::unique_ptr<Front> front = open_job_front(given, access, *others, own);
  if (front) announce("", "http", front->http_address(), access);
  if (front) announce("", "grpc", front->grpc_address(), access);
  return front;
}

/// What has been opened, and what requests share.
void tell_of(const Engine& engine, const std::string& who) {
  if (const std::string address = engine.elastic_address(); !address.empty())
    std::fprintf(stderr, "ferry: %sworkers may join on %s\n", who.c_str(), address.c_str());
  std::fprintf(stderr, "ferry: %scaches: %s\n", who.c_str(), engine.describe_caches().c_str());
  std::fprintf(stderr, "ferry: %sprefix cache: %s\n", who.c_str(), engine.describe_prefix_cache().c_str());
  std::fprintf(stderr, "ferry: %spictures: %s\n", who.c_str(), engine.describe_media().c_str());
}

/// Ends requests whose prompts are still being made as well as those that run, all by `deadline`.
void drain(GrpcServer& server, api::ApiService& apis, Coordinator& coordinator,
           std::chrono::steady_clock::time_point deadline) {
  using std::chrono::milliseconds;
  server.finish_prompts(deadline);
  apis.finish_prompts(deadline);
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
  coordinator.drain(std::max(left, milliseconds(0)));
}

}  // namespace

int run_serve(const Options& given, Cluster& cluster) {
  CoordinatorLinks* const others = cluster.coordinators();
  const Access given_access = access_of(given.serve);
  const Options options = own_options(given, others, given_access);
  const ServerLimits limits = limits_of(options.serve);
  const Access access = access_of(options.serve);
  check_tls(given_access);  // before the weights, which take long
  const std::string& otlp = options.serve.otlp_endpoint;
  const std::string spans_url = otlp.empty() ? "" : traces_url("--otlp-traces-endpoint", otlp);
  const std::unique_ptr<ArchiveKeeper> archive = open_step_archive(options.serve.archive);  // likewise
  raise_descriptor_limit();
  Engine engine(options.engine, cluster);
  engine.rehearse();
  if (options.serve.archive.trace_dir) note_roofs(engine);
  const Tokenizer& tokenizer = engine.require_tokenizer();
  const ChatTemplate chat_template = ChatTemplate::load(options.engine.model);
  Tracing tracing(spans_url, options.serve, engine.model_info());
  Coordinator coordinator(engine);
  keep_steps(coordinator, options.serve.archive, archive.get());
  const Cluster::LossWatch watch(cluster, [&](const std::string& reason) { coordinator.fail(reason); });
  CoordinatorClient client(coordinator, tokenizer, chat_template, tracing.spans(), options.serve.prefix_cache_scope);
  CoordinatorCaptures captures(coordinator);
  ExitGuard starting;  // libraries that get no memory or thread half-way may wait for themselves for ever
  starting.end_within(scaled_timeout(kServersStart),
                      "ferry: error: the ports are not open after 20 s: memory or threads may have run out");
  ProfileControl profile(captures, options.serve.archive.trace_dir.value_or("traces"),
                         options.serve.archive.trace_dir.has_value());
  const api::ApiSettings settings = api::make_settings(options.serve.api, options.engine.model.string(), client, limits);
  GrpcServer server(
      {.address = options.serve.grpc_address,
       .limits = limits,
       .access = access,
       .vllm = {.model_names = settings.model_names, .model_path = settings.model_path, .defaults = settings.defaults}},
      client, &profile);
  ServingState state(server);
  api::ApiService apis(client, settings);
  HttpMetrics http_metrics;
  const auto report = [&] { return report_of(coordinator, tracing, archive.get()); };
  LiveFeed live([&, start = std::chrono::steady_clock::now()] { return look(report(), coordinator, state, start); });
  const auto health = [&] { return health_of(coordinator, state); };
  const std::optional<HttpServer> http = open_http(options.serve, access, profile, apis, health, report,
                                                   model_name_of(options.serve, engine.model_info()), http_metrics, live);
  coordinator.set_on_failure([&] { state.end(); });
  engine.watch().set_on_change([&](const std::optional<std::string>& complaint) { state.set_overdue(complaint); });
  state.set_overdue(engine.watch().complaint());
  const std::string who = name_of(others);
  if (http) announce(who, "http", http->address(), access);
  announce(who, "grpc", server.address(), access);
  tell_of(engine, who);
  starting.leave();
  const std::unique_ptr<Front> front =
      open_front(given.serve, given_access, others, {.http = http ? http->address() : "", .grpc = server.address()});

  const bool asked_to_leave = wait_for_signal(coordinator, others);
  const auto deadline = std::chrono::steady_clock::now() + to_milliseconds(options.serve.drain_timeout_s);
  if (asked_to_leave) std::fprintf(stderr, "ferry: %sdraining\n", who.c_str());
  if (others != nullptr && others->is_first()) others->tell_to_leave();
  if (front && asked_to_leave) front->stop();  // calls that it has open are answered by this engine, too
  state.end();
  if (asked_to_leave) drain(server, apis, coordinator, deadline);
  apis.finish_prompts(std::chrono::steady_clock::now());  // none can be made any more
  apis.finish_answers(scaled_timeout(kFailureGrace));
  coordinator.set_on_failure({});
  engine.watch().set_on_change({});
  profile.leave();  // calls that wait for files would keep the servers from stopping
  server.shutdown(scaled_timeout(kFailureGrace));
  const std::optional<Error> failure = coordinator.failure();
  if (failure) throw *failure;
  return 0;
}

}  // namespace ferry

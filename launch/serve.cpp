#include <unistd.h>

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
#include "launch/load_signals.h"
#include "launch/open_ports.h"
#include "launch/step_archive.h"
#include "launch/text_check.h"
#include "launch/traced_run.h"
#include "profiler/recent_activity.h"
#include "profiler/recorder.h"
#include "runtime/base/error.h"
#include "runtime/base/timeout_factor.h"
#include "runtime/cluster/exit_guard.h"
#include "runtime/coordinator.h"
#include "runtime/elastic/socket_door.h"
#include "runtime/engine.h"
#include "runtime/load_progress.h"
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
#include "runtime/server/log/request_log.h"
#include "runtime/server/metrics/engine_metrics.h"
#include "runtime/server/metrics/http_metrics.h"
#include "runtime/server/metrics/metrics_route.h"
#include "runtime/server/openai/openai_routes.h"
#include "runtime/server/otlp/request_spans.h"
#include "runtime/server/picture_address.h"
#include "runtime/server/profile_control.h"
#include "runtime/server/profile_routes.h"
#include "runtime/server/trace_folder.h"
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
  /// `grpc` may be null: HTTP alone is served.
  explicit ServingState(GrpcServer* grpc) : grpc_(grpc) {}

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
    if (grpc_ != nullptr) grpc_->set_serving(!complaint_);
  }

  GrpcServer* const grpc_;
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

/// All that HTTP answers once the model is there.
HttpRouter make_router(ProfileControl& profile, api::ApiService& apis, HealthProbe health, EngineReporter report,
                       const std::string& model_name, HttpMetrics& metrics, LiveFeed& live) {
  HttpRouter router;
  api::openai::add_openai_routes(router, apis.context());
  api::anthropic::add_message_routes(router, apis.context());
  add_health_route(router, std::move(health));
  add_profile_routes(router, profile);
  add_live_routes(router, live);
  add_metrics_route(router, std::move(report), model_name, metrics);
  return router;
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

std::unique_ptr<RequestLog> open_request_log(RequestLogForm form) {
  if (form == RequestLogForm::kOff) return nullptr;
  return std::make_unique<RequestLog>(form == RequestLogForm::kJson ? RequestLog::Form::kJson : RequestLog::Form::kText,
                                      STDOUT_FILENO);
}

/// Logs the request unless its route only watches the server.
void log_http(RequestLog& log, const Access& access, const HttpAnswered& answered) {
  constexpr int kClientGone = 499;  // as nginx has it
  if (only_watches(answered.route)) return;
  log.add_made([&] {
    return EndedRequest{.time = std::chrono::system_clock::now(),
                        .port = "http",
                        .method = std::string(answered.method),
                        .route = std::string(answered.route),
                        .status = answered.status == 0 ? kClientGone : answered.status,
                        .key = answered.caller ? access.keys.name(*answered.caller) : "",
                        .figures = answered.note == nullptr ? RequestFigures{} : answered.note->figures(),
                        .total_s = answered.seconds};
  });
}

/// Settings that are checked, and ports and files that are opened, before the weights are read, which takes long.
struct ServeStart {
  ServeStart(const Options& given, CoordinatorLinks* coordinators)
      : others(coordinators),
        options(own_options(given, others, access_of(given.serve))),
        who(name_of(others)),
        limits(limits_of(options.serve)),
        front_access(access_of(given.serve)),
        access(access_of(options.serve)) {
    check_tls(front_access);
    api::check_settings(options.serve.api);
    check_socket_door(options.engine.elastic);
    if (!options.serve.otlp_endpoint.empty()) spans_url = traces_url("--otlp-traces-endpoint", options.serve.otlp_endpoint);
    if (options.serve.archive.trace_dir) TraceFolder(*options.serve.archive.trace_dir).require_root();
    archive = open_step_archive(options.serve.archive);
    raise_descriptor_limit();
    open_all(given.serve);
  }

  /// Right before the weights are read.
  void tell_of_load(const Engine& engine) const {
    check_text(engine, chat_template, who);
    const HttpServer* const http = front_ports.http ? front_ports.http.get() : ports.http.get();
    if (http == nullptr) return;
    std::fprintf(stderr, "ferry: %sloading; http on %s answers 503 until the model is there\n", who.c_str(),
                 http->address().c_str());
  }

  HttpObserver observer() {
    return [this](const HttpAnswered& answered) {
      http_metrics.add(answered);
      if (log) log_http(*log, access, answered);
    };
  }

  CoordinatorLinks* const others;  // null: this is the only coordinator
  const Options options;           // of this coordinator
  const std::string who;           // begins its lines
  const ServerLimits limits;
  const Access front_access, access;
  std::string spans_url;
  std::unique_ptr<ArchiveKeeper> archive;
  const ChatTemplate chat_template = ChatTemplate::load(options.engine.model);
  const std::unique_ptr<LoadProgress> progress = stderr_load_progress();
  HttpMetrics http_metrics;
  const std::unique_ptr<RequestLog> log = open_request_log(options.serve.log_requests);
  OpenPorts ports;
  OpenPorts front_ports;  // of the first of several coordinators: the front's, until it opens

 private:
  void open_all(const ServeOptions& given) {
    ports = open_ports({.http = options.serve.http_address, .grpc = options.serve.grpc_address}, options.serve.limits, access,
                       observer(), *progress);
    const bool has_front = others != nullptr && others->is_first();
    // A port that the system chooses cannot be had again by the front.
    if (has_front && !given.http_address.ends_with(":0") && !given.grpc_address.ends_with(":0")) {
      front_ports =
          open_ports({.http = given.http_address, .grpc = given.grpc_address}, given.limits, front_access, {}, *progress);
    }
  }
};

/// Null if gRPC is off.
std::unique_ptr<GrpcServer> open_grpc(ServeStart& prepared, const api::ApiSettings& settings, EngineClient& client,
                                      ProfileControl& profile) {
  if (prepared.ports.grpc == nullptr) return nullptr;
  const GrpcServerOptions options{
      .limits = prepared.limits,
      .access = prepared.access,
      .vllm = {.model_names = settings.model_names, .model_path = settings.model_path, .defaults = settings.defaults},
      .log = prepared.log.get()};
  return std::make_unique<GrpcServer>(std::move(prepared.ports.grpc), options, client, &profile);
}

/// The first coordinator's front, if there are several, and where it is. Takes the place of `held`.
std::unique_ptr<Front> open_front(const ServeOptions& given, const Access& access, CoordinatorLinks* others, OpenPorts& held,
                                  const CoordinatorLinks::Ports& own) {
  if (others == nullptr) return nullptr;
  held = {};
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
void drain(GrpcServer* grpc, api::ApiService& apis, Coordinator& coordinator, std::chrono::steady_clock::time_point deadline) {
  using std::chrono::milliseconds;
  if (grpc != nullptr) grpc->finish_prompts(deadline);
  apis.finish_prompts(deadline);
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
  coordinator.drain(std::max(left, milliseconds(0)));
}

/// After it drained or has failed. The last messages may leave.
void end_calls(GrpcServer* grpc, api::ApiService& apis, Coordinator& coordinator, Engine& engine, ProfileControl& profile) {
  apis.finish_prompts(std::chrono::steady_clock::now());  // none can be made any more
  apis.finish_answers(scaled_timeout(kFailureGrace));
  coordinator.set_on_failure({});
  engine.watch().set_on_change({});
  profile.leave();  // calls that wait for files would keep the servers from stopping
  if (grpc != nullptr) grpc->shutdown(scaled_timeout(kFailureGrace));
}

}  // namespace

int run_serve(const Options& given, Cluster& cluster) {
  ServeStart prepared(given, cluster.coordinators());
  CoordinatorLinks* const others = prepared.others;
  const Options& options = prepared.options;
  const std::string& who = prepared.who;
  ArchiveKeeper* const archive = prepared.archive.get();
  const EngineStart start{.progress = prepared.progress.get(), .check = [&](const Engine& e) { prepared.tell_of_load(e); }};
  std::optional<LoadSignals> load_signals(std::in_place, cluster.group() != nullptr);
  Engine engine(options.engine, cluster, Engine::LogitRows::kSampled, real_clock(), start);
  engine.rehearse();
  load_signals.reset();
  if (options.serve.archive.trace_dir) note_roofs(engine);
  Tracing tracing(prepared.spans_url, options.serve, engine.model_info());
  Coordinator coordinator(engine);
  keep_steps(coordinator, options.serve.archive, archive);
  const Cluster::LossWatch watch(cluster, [&](const std::string& reason) { coordinator.fail(reason); });
  CoordinatorClient client(coordinator, engine, prepared.chat_template, tracing.spans(), options.serve.prefix_cache_scope);
  CoordinatorCaptures captures(coordinator);
  ExitGuard starting;  // libraries that get no memory or thread half-way may wait for themselves for ever
  starting.end_within(scaled_timeout(kServersStart),
                      "ferry: error: the ports are not open after 20 s: memory or threads may have run out");
  ProfileControl profile(captures, options.serve.archive.trace_dir.value_or("traces"),
                         options.serve.archive.trace_dir.has_value());
  const api::ApiSettings settings =
      api::make_settings(options.serve.api, options.engine.model.string(), client, prepared.limits);
  const std::unique_ptr<GrpcServer> grpc = open_grpc(prepared, settings, client, profile);
  ServingState state(grpc.get());
  api::ApiService apis(client, settings);
  const auto report = [&] { return report_of(coordinator, tracing, archive); };
  LiveFeed live([&, begin = std::chrono::steady_clock::now()] { return look(report(), coordinator, state, begin); });
  const auto health = [&] { return health_of(coordinator, state); };
  const std::unique_ptr<HttpServer> http = std::move(prepared.ports.http);  // ends before what its handlers use
  coordinator.set_on_failure([&] { state.end(); });
  engine.watch().set_on_change([&](const std::optional<std::string>& complaint) { state.set_overdue(complaint); });
  state.set_overdue(engine.watch().complaint());
  if (http) {
    http->set_router(make_router(profile, apis, health, report, model_name_of(options.serve, engine.model_info()),
                                 prepared.http_metrics, live));
    announce(who, "http", http->address(), prepared.access);
  }
  if (grpc) announce(who, "grpc", grpc->address(), prepared.access);
  tell_of(engine, who);
  starting.leave();
  const std::unique_ptr<Front> front = open_front(given.serve, prepared.front_access, others, prepared.front_ports,
                                                  {.http = http ? http->address() : "", .grpc = grpc ? grpc->address() : ""});

  const bool asked_to_leave = wait_for_signal(coordinator, others);
  const auto deadline = std::chrono::steady_clock::now() + to_milliseconds(options.serve.drain_timeout_s);
  if (asked_to_leave) std::fprintf(stderr, "ferry: %sdraining\n", who.c_str());
  if (others != nullptr && others->is_first()) others->tell_to_leave();
  if (front && asked_to_leave) front->stop();  // calls that it has open are answered by this engine, too
  state.end();
  if (asked_to_leave) drain(grpc.get(), apis, coordinator, deadline);
  end_calls(grpc.get(), apis, coordinator, engine, profile);
  const std::optional<Error> failure = coordinator.failure();
  if (failure) throw *failure;
  return 0;
}

}  // namespace ferry

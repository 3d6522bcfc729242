#include "runtime/server/front/front.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/quoting.h"
#include "runtime/net/host_port.h"
#include "runtime/server/front/coordinator_pool.h"
#include "runtime/server/front/coordinator_probe.h"
#include "runtime/server/front/front_routes.h"
#include "runtime/server/front/grpc_proxy.h"
#include "runtime/server/front/http_proxy.h"
#include "runtime/server/http/http_client.h"
#include "runtime/server/http/http_server.h"
#include "runtime/server/http/tls_check.h"
#include "runtime/server/metrics/http_metrics.h"
#include "runtime/server/task_pool.h"

namespace ferry {
namespace {

constexpr std::size_t kReaders = 2, kMaxWaitingBodies = 1024;  // threads that read bodies, and bodies before them

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

void check_address(const std::string& address) {
  if (parse_host_port("coordinator", address).port == 0)
    throw_invalid("coordinator: " + in_quotes(address) + " has port 0; allowed: the port of a server that runs");
}

std::vector<CoordinatorAddress> checked_coordinators(const FrontOptions& options) {
  const std::size_t num_coordinators = options.coordinators.size();
  if (num_coordinators == 0 || num_coordinators > FrontOptions::kMaxCoordinators) {
    throw_invalid("coordinators: " + std::to_string(num_coordinators) + "; allowed: 1 to " +
                  std::to_string(FrontOptions::kMaxCoordinators));
  }
  for (const CoordinatorAddress& each : options.coordinators) {
    check_address(each.http);
    if (!each.grpc.empty()) check_address(each.grpc);
  }
  return options.coordinators;
}

bool wants_grpc(const FrontOptions& options) {
  return options.grpc_address != "off" && std::any_of(options.coordinators.begin(), options.coordinators.end(),
                                                      [](const CoordinatorAddress& each) { return !each.grpc.empty(); });
}

}  // namespace

class Front::Impl {
 public:
  Impl(const FrontOptions& options, const Access& access, const FrontTimes& times, Clock& clock)
      : drain_timeout_(milliseconds_of(options.drain_timeout_s)),
        limits_(options.limits),
        access_(access),
        pool_(checked_coordinators(options)) {
    check_tls(access_);
    const ProbeTimes probe_times{
        .period = times.probe_period, .deadline = times.look, .lost_after = milliseconds_of(options.lost_after_s)};
    probe_.emplace(
        pool_, client_, mark_, probe_times, [this] { tell_health(); }, clock);
    if (wants_grpc(options)) {
      grpc_.emplace(options.grpc_address, limits_, access_, pool_, mark_, times);
      grpc_health_ = &*grpc_;
      tell_health();
    }
    if (options.http_address != "off") open_http(options);
    if (http_) http_address_ = http_->address();
    if (grpc_) grpc_address_ = grpc_->address();
  }
  ~Impl() { stop(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const std::string& http_address() const { return http_address_; }
  const std::string& grpc_address() const { return grpc_address_; }

  /// Both ports drain side by side.
  void stop() {
    const std::scoped_lock lock(stop_mutex_);
    is_draining_ = true;
    tell_health();
    std::thread http([this] { http_.reset(); });
    if (grpc_) grpc_->shutdown(drain_timeout_);
    http.join();
  }

 private:
  void open_http(const FrontOptions& options) {
    HttpRouter router;
    add_proxy_routes(router, proxy_);
    add_front_routes(router, pool_, metrics_, is_draining_, mark_);
    const HttpServerOptions server{
        .address = options.http_address, .limits = limits_, .observe = metrics_.observer(), .stop_s = options.drain_timeout_s};
    http_.emplace(server, access_, std::move(router));
  }

  /// Over gRPC; HTTP asks.
  void tell_health() {
    GrpcProxy* const grpc = grpc_health_;
    if (grpc != nullptr) grpc->set_serving(!is_draining_ && pool_.report().num_serving() > 0);
  }

  const std::chrono::milliseconds drain_timeout_;
  const ServerLimits limits_;
  const Access access_;
  const FrontMark mark_;
  CoordinatorPool pool_;
  HttpMetrics metrics_;
  std::atomic<bool> is_draining_{false};
  // In this order: servers end calls, what the readers still have asks the client, and that tells calls of its end.
  HttpClient client_;
  TaskPool readers_{kReaders, kMaxWaitingBodies};
  HttpProxyContext proxy_{.pool = pool_, .client = client_, .readers = readers_, .limits = limits_, .mark = mark_};
  std::optional<GrpcProxy> grpc_;
  std::atomic<GrpcProxy*> grpc_health_{nullptr};  // grpc_, once it is there
  std::optional<CoordinatorProbe> probe_;         // tells it
  std::optional<HttpServer> http_;
  std::string http_address_, grpc_address_;
  std::mutex stop_mutex_;
};

Front::Front(const FrontOptions& options, const Access& access, const FrontTimes& times, Clock& clock)
    : impl_(std::make_unique<Impl>(options, access, times, clock)) {}
Front::~Front() = default;
const std::string& Front::http_address() const { return impl_->http_address(); }
const std::string& Front::grpc_address() const { return impl_->grpc_address(); }
void Front::stop() { impl_->stop(); }

}  // namespace ferry

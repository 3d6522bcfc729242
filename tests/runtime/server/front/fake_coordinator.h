#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/server/access.h"
#include "runtime/server/front/front_times.h"
#include "runtime/server/http/http_server.h"
#include "tests/runtime/server/patient_limits.h"
#include "tests/support/eventually.h"
#include "tests/support/manual_clock.h"
#include "tests/support/reserved_port.h"

namespace ferry::test {

/// A coordinator's HTTP port that answers as a test says.
class FakeCoordinator {
 public:
  using Handler = std::function<void(HttpRequest request, HttpReply reply)>;

  explicit FakeCoordinator(Handler handler) : handler_(std::move(handler)) { start_again(); }
  FakeCoordinator(const FakeCoordinator&) = delete;
  FakeCoordinator& operator=(const FakeCoordinator&) = delete;

  std::string address() const { return port_.address(); }
  /// Requests but those for its health.
  int num_requests() const { return num_requests_; }
  /// Looks at its health.
  int num_looks() const { return num_looks_; }
  /// What looks at its health get: 200, another status, or (0) no answer.
  void set_health(int status) { health_ = status; }

  /// Nobody listens any more; calls that are open are cut.
  void stop() { server_.reset(); }
  /// At the address that it had.
  void start_again() {
    HttpRouter router;
    const auto answer = [this](HttpRequest request, HttpReply reply) {
      ++num_requests_;
      handler_(std::move(request), std::move(reply));
    };
    for (const char* path : {"/v1/chat/completions", "/v1/completions", "/v1/messages", "/tokenize"})
      router.add("POST", path, {.handler = answer, .blocking = {}});
    router.add("GET", "/v1/models", {.handler = answer, .blocking = {}});
    const auto health = [this](const HttpRequest&, HttpReply reply) {
      ++num_looks_;
      if (health_ == 0) {
        silent_.emplace_back(std::move(reply));
        return;
      }
      reply.send(health_ == 200 ? HttpResponse{.status = 200, .body = "{}\n"} : http_error(health_, "it drains"));
    };
    router.add("GET", "/health", {.handler = health, .blocking = {}, .guard = HttpGuard::kOpen});
    server_.emplace(HttpServerOptions{.address = address(), .limits = patient_limits(), .stop_s = 0}, access_,
                    std::move(router));
  }

 private:
  const Handler handler_;
  const Access access_{};
  const ReservedPort port_;
  std::atomic<int> num_requests_{0}, num_looks_{0};
  std::atomic<int> health_{200};
  std::vector<HttpReply> silent_;  // of the I/O thread; looks that get no answer
  std::optional<HttpServer> server_;
};

/// A front whose clock the test moves, and which waits for coordinators for ever: nothing happens to it but what a test does.
inline constexpr FrontTimes kPatientTimes{
    .look = std::chrono::hours(100'000), .grpc_connect = std::chrono::hours(1), .broadcast = std::chrono::hours(1)};
inline constexpr double kNeverLost = 1e9;  // FrontOptions::lost_after_s

/// Lets a front look at its coordinators again and again until the condition is true.
template <class Condition>
void eventually_after_looks(ManualClock& clock, Condition condition, const std::string& what) {
  eventually(
      [&] {
        clock.advance(FrontTimes{}.probe_period);
        return condition();
      },
      what);
}

inline void answer_ok(HttpRequest, HttpReply reply) { reply.send({.status = 200, .body = "{\"ok\":true}"}); }

}  // namespace ferry::test

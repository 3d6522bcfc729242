#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/server/access.h"
#include "runtime/server/http/http_server.h"

namespace ferry::test {

/// A coordinator's HTTP port that answers as a test says.
class FakeCoordinator {
 public:
  using Handler = std::function<void(HttpRequest request, HttpReply reply)>;

  explicit FakeCoordinator(Handler handler) : handler_(std::move(handler)) { start("127.0.0.1:0"); }
  FakeCoordinator(const FakeCoordinator&) = delete;
  FakeCoordinator& operator=(const FakeCoordinator&) = delete;

  const std::string& address() const { return address_; }
  /// Requests but those for its health.
  int num_requests() const { return num_requests_; }
  /// What looks at its health get: 200, another status, or (0) no answer.
  void set_health(int status) { health_ = status; }

  /// Nobody listens any more; calls that are open are cut.
  void stop() { server_.reset(); }
  /// At the address that it had.
  void start_again() { start(address_); }

 private:
  void start(const std::string& address) {
    HttpRouter router;
    const auto answer = [this](HttpRequest request, HttpReply reply) {
      ++num_requests_;
      handler_(std::move(request), std::move(reply));
    };
    for (const char* path : {"/v1/chat/completions", "/v1/completions", "/v1/messages", "/tokenize"})
      router.add("POST", path, {.handler = answer, .blocking = {}});
    router.add("GET", "/v1/models", {.handler = answer, .blocking = {}});
    const auto health = [this](const HttpRequest&, HttpReply reply) {
      if (health_ == 0) {
        silent_.emplace_back(std::move(reply));
        return;
      }
      reply.send(health_ == 200 ? HttpResponse{.status = 200, .body = "{}\n"} : http_error(health_, "it drains"));
    };
    router.add("GET", "/health", {.handler = health, .blocking = {}, .guard = HttpGuard::kOpen});
    server_.emplace(HttpServerOptions{.address = address, .limits = {}, .stop_s = 0.1}, access_, std::move(router));
    address_ = server_->address();
  }

  const Handler handler_;
  const Access access_{};
  std::string address_;
  std::atomic<int> num_requests_{0};
  std::atomic<int> health_{200};
  std::vector<HttpReply> silent_;  // of the I/O thread; looks that get no answer
  std::optional<HttpServer> server_;
};

/// Whether `condition` becomes true within a generous while.
template <class Condition>
bool becomes_true(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return condition();
}

inline void answer_ok(HttpRequest, HttpReply reply) { reply.send({.status = 200, .body = "{\"ok\":true}"}); }

}  // namespace ferry::test

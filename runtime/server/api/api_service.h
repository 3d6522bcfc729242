#pragma once

#include <chrono>
#include <memory>

#include "runtime/server/api/settings.h"
#include "runtime/server/engine_client.h"

namespace ferry::api {

struct ApiContext;

/// What the HTTP APIs over one engine share: their calls, and the threads that read and write them. Any thread may call any
/// method. `engine` must outlive it, and it the HttpServer whose router has routes with its context.
class ApiService {
 public:
  ApiService(EngineClient& engine, ApiSettings settings);
  ~ApiService();
  ApiService(const ApiService&) = delete;
  ApiService& operator=(const ApiService&) = delete;

  ApiContext& context();

  /// Takes no more calls for tokens and returns when the prompts of those it has are made and submitted; what is still at it at
  /// `deadline` is ended.
  void finish_prompts(std::chrono::steady_clock::time_point deadline);
  /// Returns when the calls whose requests have ended are answered, or the time is over.
  void finish_answers(std::chrono::milliseconds timeout);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry::api

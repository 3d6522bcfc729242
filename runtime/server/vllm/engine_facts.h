#pragma once

#include <chrono>
#include <mutex>
#include <optional>

#include "runtime/options/server_limits.h"
#include "runtime/server/engine_client.h"
#include "runtime/server/vllm/settings.h"
#include "vllm/engine.pb.h"

// What VllmEngine tells of the model, the server and its load.

namespace ferry::vllm {

/// Tokens a second, from a count that grows: of the last second or more before the last question. Any thread may call it.
class TokenRate {
 public:
  using SteadyClock = std::chrono::steady_clock;

  double take(int64_t num_tokens, SteadyClock::time_point now);

 private:
  std::mutex mutex_;  // guards what follows
  std::optional<SteadyClock::time_point> since_;
  int64_t tokens_since_ = 0;
  double rate_ = 0;
};

/// Does not change while the server runs. Reads config.json once; throws as reading it does.
::vllm::grpc::engine::GetModelInfoResponse model_facts(const EngineClient& engine, const Settings& settings);

/// But for active_requests and times.
::vllm::grpc::engine::GetServerInfoResponse server_facts(const EngineClient& engine, const ServerLimits& limits);

::vllm::grpc::engine::GetLoadsResponse load_facts(const EngineLoad& load, double tokens_per_s);

}  // namespace ferry::vllm

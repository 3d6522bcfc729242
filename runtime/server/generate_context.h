#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/base/clock.h"
#include "runtime/options/server_limits.h"
#include "runtime/server/answer_bytes.h"
#include "runtime/server/engine_client.h"
#include "runtime/server/preparations.h"
#include "runtime/server/prompt_pools.h"

namespace ferry {

class RequestLog;

/// Counts what open calls hold, so that the memory of all of them together has a bound. Any thread may call any method.
class OpenCalls {
 public:
  OpenCalls(int64_t max_calls, int64_t max_bytes) : max_calls_(max_calls), max_bytes_(max_bytes) {}

  /// Lets a call with a message of `num_bytes` in; false if there are too many or they hold too much. Who got in must leave.
  [[nodiscard]] bool enter(int64_t num_bytes);
  void leave(int64_t num_bytes);

 private:
  const int64_t max_calls_, max_bytes_;
  std::mutex mutex_;  // guards what follows
  int64_t num_calls_ = 0, num_bytes_ = 0;
};

/// What all calls for tokens of a gRPC port share, whatever service they are of.
struct GenerateContext {
  EngineClient& engine;
  const ServerLimits limits;
  Clock& clock;  // of arrivals and deadlines: the coordinator's own
  Preparations preparations;
  PromptPools pools;
  const std::shared_ptr<OpenCalls> open_calls;  // calls that outlive the services leave it, too
  const std::shared_ptr<AnswerMemory> answers;  // calls give back what they hold, also those that outlive the services
  RequestLog* const log;                        // hears of calls that have ended; null: nobody does

  GenerateContext(EngineClient& engine_client, const ServerLimits& server_limits, Clock& its_clock = real_clock(),
                  RequestLog* request_log = nullptr);

  /// Ends the call that `owner` named so, or whose requests have that name; false if there is none.
  bool abort(const std::string& owner, const std::string& request_id);
};

/// `limits` with no more bytes of prompt than fit the context.
ServerLimits bounded_by(const PromptBounds& bounds, ServerLimits limits);

}  // namespace ferry

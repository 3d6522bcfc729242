#include "runtime/server/generate_context.h"

#include <algorithm>

namespace ferry {
namespace {

constexpr int64_t kCallsBesideTheQueue = 256;  // whose answers are still being read, or whose prompts are being made

int64_t max_open_calls(const EngineLoad& load) {
  return load.max_running_requests + load.max_waiting_requests + kCallsBesideTheQueue;
}

}  // namespace

bool OpenCalls::enter(int64_t num_bytes) {
  const std::lock_guard lock(mutex_);
  if (num_calls_ >= max_calls_ || num_bytes > max_bytes_ - num_bytes_) return false;
  ++num_calls_;
  num_bytes_ += num_bytes;
  return true;
}

void OpenCalls::leave(int64_t num_bytes) {
  const std::lock_guard lock(mutex_);
  --num_calls_;
  num_bytes_ -= num_bytes;
}

GenerateContext::GenerateContext(EngineClient& engine_client, const ServerLimits& server_limits, Clock& its_clock,
                                 RequestLog* request_log)
    : engine(engine_client),
      limits(bounded_by(engine_client.prompt_bounds(), server_limits)),
      clock(its_clock),
      preparations(its_clock),
      pools(engine_client.load(), server_limits),
      open_calls(std::make_shared<OpenCalls>(max_open_calls(engine_client.load()), server_limits.grpc_memory_bytes)),
      answers(std::make_shared<AnswerMemory>(server_limits.total_answer_bytes)),
      log(request_log) {}

bool GenerateContext::abort(const std::string& owner, const std::string& request_id) {
  // In this order: requests are submitted before their call leaves the preparations. And both: one may run while another that
  // was given the same id is prepared, to be refused.
  const bool was_prepared = preparations.abort(owner, request_id);
  const bool was_open = engine.abort(owner, request_id);
  return was_prepared || was_open;
}

ServerLimits bounded_by(const PromptBounds& bounds, ServerLimits limits) {
  limits.prompt_bytes = std::min(limits.prompt_bytes, bounds.max_bytes);
  return limits;
}

}  // namespace ferry

#include "runtime/server/api/api_service.h"

#include <string>
#include <utility>

#include "runtime/server/api/api_context.h"

namespace ferry::api {
namespace {

constexpr std::size_t kMaxWaitingAnswers = 1024;  // to be written as a whole

}  // namespace

class ApiService::Impl {
 public:
  Impl(EngineClient& engine, ApiSettings settings)
      : context_{.engine = engine,
                 .answers = std::make_shared<AnswerMemory>(settings.limits.total_answer_bytes),
                 .settings = std::move(settings),
                 .grammars = engine.grammars(),
                 .finishers = TaskPool(1, kMaxWaitingAnswers),
                 .pools = PromptPools(engine.load(), context_.settings.limits)} {}

  ApiContext& context() { return context_; }

 private:
  ApiContext context_;
};

ApiService::ApiService(EngineClient& engine, ApiSettings settings)
    : impl_(std::make_unique<Impl>(engine, std::move(settings))) {}
ApiService::~ApiService() = default;
ApiContext& ApiService::context() { return impl_->context(); }
void ApiService::finish_prompts(std::chrono::steady_clock::time_point deadline) {
  impl_->context().preparations.drain(deadline);
}
void ApiService::finish_answers(std::chrono::milliseconds timeout) { impl_->context().calls.wait_until_none(timeout); }

}  // namespace ferry::api

#include "runtime/server/openai/openai_service.h"

#include <string>
#include <utility>

#include "runtime/server/http/router.h"
#include "runtime/server/openai/call_route.h"
#include "runtime/server/openai/chat_task.h"
#include "runtime/server/openai/completion_task.h"
#include "runtime/server/openai/info_routes.h"
#include "runtime/server/openai/responses_routes.h"
#include "runtime/server/openai/token_routes.h"

namespace ferry::openai {
namespace {

constexpr std::size_t kTokenizerThreads = 2;      // calls whose bodies are read and prompts tokenized at once
constexpr std::size_t kMediaThreads = 2;          // calls whose pictures are fetched and decoded at once
constexpr std::size_t kGrammarThreads = 2;        // calls whose grammars are waited for at once
constexpr std::size_t kMaxWaitingPrompts = 64;    // for one of these, each
constexpr std::size_t kMaxWaitingAnswers = 1024;  // to be written as a whole

}  // namespace

class OpenAiService::Impl {
 public:
  Impl(EngineClient& engine, ApiSettings settings)
      : context_{.engine = engine,
                 .settings = std::move(settings),
                 .grammars = engine.grammars(),
                 .finishers = TaskPool(1, kMaxWaitingAnswers),
                 .media_readers = TaskPool(kMediaThreads, kMaxWaitingPrompts),
                 .grammar_makers = TaskPool(kGrammarThreads, kMaxWaitingPrompts),
                 .tokenizers = TaskPool(kTokenizerThreads, kMaxWaitingPrompts)} {}

  void add_routes(HttpRouter& router) {
    for (const std::string prefix : {"/v1", ""}) {
      add_call_route(router, prefix + "/completions", context_, read_completion_task, openai_errors());
      add_call_route(router, prefix + "/chat/completions", context_, read_chat_task, openai_errors());
    }
    add_responses_routes(router, context_);
    add_info_routes(router, context_);
    add_token_routes(router, context_.engine, context_.settings);
  }

  ApiContext& context() { return context_; }

 private:
  ApiContext context_;
};

OpenAiService::OpenAiService(EngineClient& engine, ApiSettings settings)
    : impl_(std::make_unique<Impl>(engine, std::move(settings))) {}
OpenAiService::~OpenAiService() = default;
void OpenAiService::add_routes(HttpRouter& router) { impl_->add_routes(router); }
ApiContext& OpenAiService::context() { return impl_->context(); }
void OpenAiService::finish_prompts(std::chrono::steady_clock::time_point deadline) {
  impl_->context().preparations.drain(deadline);
}
void OpenAiService::finish_answers(std::chrono::milliseconds timeout) { impl_->context().calls.wait_until_none(timeout); }

}  // namespace ferry::openai

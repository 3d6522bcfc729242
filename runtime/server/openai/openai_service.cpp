#include "runtime/server/openai/openai_service.h"

#include <string>
#include <utility>

#include "runtime/server/http/router.h"
#include "runtime/server/openai/api_call.h"
#include "runtime/server/openai/chat_task.h"
#include "runtime/server/openai/completion_task.h"
#include "runtime/server/openai/info_routes.h"
#include "runtime/server/openai/token_routes.h"

namespace ferry::openai {
namespace {

constexpr std::size_t kTokenizerThreads = 2;      // calls whose bodies are read and prompts tokenized at once
constexpr std::size_t kMediaThreads = 2;          // calls whose pictures are fetched and decoded at once
constexpr std::size_t kGrammarThreads = 2;        // calls whose grammars are waited for at once
constexpr std::size_t kMaxWaitingPrompts = 64;    // for one of these, each
constexpr std::size_t kMaxWaitingAnswers = 1024;  // to be written as a whole

using Reader = std::unique_ptr<ApiTask> (*)(const HttpRequest&, const EngineClient&, GrammarEngine&, const ApiSettings&);

}  // namespace

class OpenAiService::Impl {
 public:
  Impl(EngineClient& engine, ApiSettings settings)
      : context_{.engine = engine,
                 .settings = std::move(settings),
                 .grammars = GrammarEngine(engine.tokenizer(), engine.model_info().generation.stop_token_ids),
                 .finishers = TaskPool(1, kMaxWaitingAnswers),
                 .media_readers = TaskPool(kMediaThreads, kMaxWaitingPrompts),
                 .grammar_makers = TaskPool(kGrammarThreads, kMaxWaitingPrompts),
                 .tokenizers = TaskPool(kTokenizerThreads, kMaxWaitingPrompts)} {}

  void add_routes(HttpRouter& router) {
    for (const std::string prefix : {"/v1", ""}) {
      add_call(router, prefix + "/completions", read_completion_task);
      add_call(router, prefix + "/chat/completions", read_chat_task);
    }
    add_info_routes(router, context_);
    add_token_routes(router, context_.engine, context_.settings);
  }

  ApiContext& context() { return context_; }

 private:
  void add_call(HttpRouter& router, const std::string& path, Reader reader) {
    const ReadTask read = [this, reader](const HttpRequest& request) {
      return reader(request, context_.engine, context_.grammars, context_.settings);
    };
    router.add(
        "POST", path,
        {.handler = [this, read](HttpRequest request,
                                 HttpReply reply) { ApiCall::start(context_, std::move(request), std::move(reply), read); },
         .blocking = {}});
  }

  ApiContext context_;
};

OpenAiService::OpenAiService(EngineClient& engine, ApiSettings settings)
    : impl_(std::make_unique<Impl>(engine, std::move(settings))) {}
OpenAiService::~OpenAiService() = default;
void OpenAiService::add_routes(HttpRouter& router) { impl_->add_routes(router); }
void OpenAiService::finish_prompts(std::chrono::steady_clock::time_point deadline) {
  impl_->context().preparations.drain(deadline);
}
void OpenAiService::finish_answers(std::chrono::milliseconds timeout) { impl_->context().calls.wait_until_none(timeout); }

}  // namespace ferry::openai

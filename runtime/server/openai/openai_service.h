#pragma once

#include <chrono>
#include <memory>

#include "runtime/server/engine_client.h"
#include "runtime/server/openai/settings.h"

namespace ferry {
class HttpRouter;
}

namespace ferry::openai {

struct ApiContext;

/// OpenAI's HTTP API as vLLM speaks it (README.md says what is served and what is refused):
///
///   GET  /v1/models                 the model, under all its names
///   POST /v1/completions            a text goes on
///   POST /v1/chat/completions       an assistant answers
///   POST /v1/responses              the same in a newer form, of which nothing is stored
///   POST /tokenize, /detokenize     between text, or messages, and tokens
///   POST /apply-template            messages as the text that the model gets
///   GET  /version, /load            what runs here, and how many calls are open
///   GET and POST /ping              as GET /health
///
/// and all of /v1 without that in front. Any thread may call any method. `engine` must outlive it, and it the HttpServer.
class OpenAiService {
 public:
  OpenAiService(EngineClient& engine, ApiSettings settings);
  ~OpenAiService();
  OpenAiService(const OpenAiService&) = delete;
  OpenAiService& operator=(const OpenAiService&) = delete;

  void add_routes(HttpRouter& router);
  /// For other APIs over the same engine: their calls count as this one's and end with them.
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

}  // namespace ferry::openai

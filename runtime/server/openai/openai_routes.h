#pragma once

namespace ferry {
class HttpRouter;
namespace api {
struct ApiContext;
}
}  // namespace ferry

namespace ferry::api::openai {

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
/// and all of /v1 without that in front. `context` must outlive the server.
void add_openai_routes(HttpRouter& router, ApiContext& context);

}  // namespace ferry::api::openai

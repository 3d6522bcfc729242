#pragma once

#include "runtime/server/api/settings.h"

namespace ferry {
class EngineClient;
class HttpRouter;
}  // namespace ferry

namespace ferry::api::openai {

/// POST /tokenize, /detokenize and /apply-template, which need the engine for nothing but its tokenizer and template. Both must
/// outlive the server.
void add_token_routes(HttpRouter& router, const EngineClient& engine, const ApiSettings& settings);

}  // namespace ferry::api::openai

#include "runtime/server/api/token_names.h"

#include "runtime/server/engine_client.h"
#include "runtime/text/unicode_text.h"

namespace ferry::api {

TokenNames TokenNames::of(const EngineClient& engine, bool as_ids) {
  return engine.has_tokenizer() ? TokenNames(engine.tokenizer(), as_ids) : TokenNames();
}

std::string TokenNames::name(TokenId id) const { return as_ids_ ? "token_id:" + std::to_string(id) : text(id); }

std::string TokenNames::text(TokenId id) const { return repair_utf8(bytes(id)); }

}  // namespace ferry::api

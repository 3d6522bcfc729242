#include "runtime/server/api/token_names.h"

#include "runtime/text/unicode_text.h"

namespace ferry::api {

std::string TokenNames::name(TokenId id) const { return as_ids_ ? "token_id:" + std::to_string(id) : text(id); }

std::string TokenNames::text(TokenId id) const { return repair_utf8(tokenizer_->token_bytes(id)); }

}  // namespace ferry::api

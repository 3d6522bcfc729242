#pragma once

#include <string>
#include <string_view>

#include "runtime/base/types.h"
#include "runtime/text/tokenizer.h"

namespace ferry {
class EngineClient;
}

namespace ferry::api {

/// Names of single tokens in answers. Borrows the tokenizer. Without a tokenizer, tokens have no text.
class TokenNames {
 public:
  /// `as_ids`: "token_id:123", which names every token, in place of its text.
  TokenNames(const Tokenizer& tokenizer, bool as_ids) : tokenizer_(&tokenizer), as_ids_(as_ids) {}
  /// The names that `engine` has: with `as_ids`, or if it has no tokenizer, ids.
  static TokenNames of(const EngineClient& engine, bool as_ids);

  /// A part of a character that is no text by itself is U+FFFD.
  std::string name(TokenId id) const;
  /// The text, whatever the name is.
  std::string text(TokenId id) const;
  std::string_view bytes(TokenId id) const { return tokenizer_ == nullptr ? std::string_view() : tokenizer_->token_bytes(id); }
  const Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  TokenNames() : tokenizer_(nullptr), as_ids_(true) {}

  const Tokenizer* tokenizer_;
  bool as_ids_;
};

}  // namespace ferry::api

#pragma once

#include <string>
#include <string_view>

#include "runtime/base/types.h"
#include "runtime/text/tokenizer.h"

namespace ferry::api {

/// How tokens are called where an answer tells of single ones. Borrows the tokenizer.
class TokenNames {
 public:
  /// `as_ids`: "token_id:123", which names every token, in place of its text.
  TokenNames(const Tokenizer& tokenizer, bool as_ids) : tokenizer_(&tokenizer), as_ids_(as_ids) {}

  /// A part of a character that is no text by itself is U+FFFD.
  std::string name(TokenId id) const;
  /// The text, whatever the name is.
  std::string text(TokenId id) const;
  std::string_view bytes(TokenId id) const { return tokenizer_->token_bytes(id); }
  const Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  const Tokenizer* tokenizer_;
  bool as_ids_;
};

}  // namespace ferry::api

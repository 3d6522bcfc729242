#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/jinja/lexer.h"
#include "runtime/text/jinja/limits.h"

namespace ferry::jinja {

/// Where a parser is in a template. Its last token is kEnd, which it does not pass.
class TokenStream {
 public:
  TokenStream(std::vector<Token> tokens, const Limits& limits) : tokens_(std::move(tokens)), limits_(limits) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& following() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  const Token& next() {
    const Token& token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }

  bool is(Token::Kind kind) const { return current().kind == kind; }
  bool is_name(std::string_view name) const { return is(Token::Kind::kName) && current().text == name; }
  bool is_operator(std::string_view op) const { return is(Token::Kind::kOperator) && current().text == op; }
  bool skip_name(std::string_view name) { return is_name(name) && (next(), true); }
  bool skip_operator(std::string_view op) { return is_operator(op) && (next(), true); }

  /// Throw SyntaxFault where the current token is another one.
  const Token& expect(Token::Kind kind, const char* what) { return is(kind) ? next() : refuse_token(what); }
  void expect_operator(const char* op) { skip_operator(op) || (refuse_token(op), true); }
  void expect_name(const char* name) { skip_name(name) || (refuse_token(name), true); }

  [[noreturn]] void refuse(const std::string& message) const { throw SyntaxFault{message, current().line}; }
  [[noreturn]] const Token& refuse_token(const std::string& wanted) const {
    refuse("expected " + wanted + ", got " + described(current()));
  }

  /// Counts how deep the parser is within the template; fails where that is too deep.
  class Level {
   public:
    explicit Level(TokenStream& stream) : stream_(stream) {
      if (++stream_.level_ > stream_.limits_.nesting) {
        --stream_.level_;
        stream_.refuse("it is nested deeper than " + std::to_string(stream_.limits_.nesting));
      }
    }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    ~Level() { --stream_.level_; }

   private:
    TokenStream& stream_;
  };

  const Limits& limits() const { return limits_; }

 private:
  static std::string described(const Token& token) {
    switch (token.kind) {
      case Token::Kind::kEnd: return "the end of the template";
      case Token::Kind::kBlockEnd: return "the end of the block";
      case Token::Kind::kOutputEnd: return "the end of the output";
      case Token::Kind::kString: return "a string";
      default: return "'" + token.text + "'";
    }
  }

  std::vector<Token> tokens_;
  const Limits limits_;
  std::size_t at_ = 0;
  int level_ = 0;
};

}  // namespace ferry::jinja

#pragma once

#include "runtime/text/jinja/syntax.h"
#include "runtime/text/jinja/token_stream.h"

namespace ferry::jinja {

/// Reads expressions, as jinja2's parser does (jinja2/parser.py of 3.1). All methods throw SyntaxFault.
class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& stream) : stream_(stream) {}

  ExpressionPtr parse(bool takes_condition = true);
  /// One expression, or several with commas between them, which make a tuple.
  ExpressionPtr parse_tuple(bool takes_condition = true, bool is_in_parentheses = false);
  /// `name(arguments) | name …` at the head of a filter block, or behind a block's `set`.
  ExpressionPtr parse_filters(ExpressionPtr input);
  ExpressionPtr parse_filter(ExpressionPtr input);
  /// A name, attributes of namespaces where `takes_attributes`, or a tuple of these.
  Target parse_target(bool takes_attributes);

 private:
  using Kind = Expression::Kind;

  std::unique_ptr<Expression> make(Kind kind, int line) const;
  /// Takes the parts over and counts how deep they are.
  ExpressionPtr finish(std::unique_ptr<Expression> made) const;
  ExpressionPtr constant(Value value, int line) const;
  ExpressionPtr pair(Kind kind, ExpressionPtr first, ExpressionPtr second, int line) const;

  ExpressionPtr parse_condition();
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_comparison();
  bool take_comparison(Expression::Comparison& comparison);
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concat();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool takes_filters);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_name();
  ExpressionPtr parse_strings();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr expression);
  ExpressionPtr parse_filter_chain(ExpressionPtr expression);
  ExpressionPtr parse_subscript(ExpressionPtr expression);
  ExpressionPtr parse_subscribed(ExpressionPtr object, int line);
  ExpressionPtr parse_test(ExpressionPtr expression);
  ExpressionPtr parse_call(ExpressionPtr callee);
  CallArguments parse_arguments();
  std::string parse_dotted_name();
  bool begins_test_argument() const;
  bool ends_tuple() const;
  Target parse_single_target(bool takes_attributes);

  TokenStream& stream_;
};

}  // namespace ferry::jinja

#include "runtime/text/jinja/walk.h"

namespace ferry::jinja {
namespace {

using OnStatement = std::function<void(const Statement&)>;
using OnExpression = std::function<void(const Expression&)>;

void walk_expression(const ExpressionPtr& expression, const OnExpression& fn) {
  if (!expression) return;
  fn(*expression);
  for (const ExpressionPtr& part : expression->parts) walk_expression(part, fn);
  for (const ExpressionPtr& part : expression->arguments.positional) walk_expression(part, fn);
  for (const auto& [name, part] : expression->arguments.named) walk_expression(part, fn);
  walk_expression(expression->arguments.more_positional, fn);
  walk_expression(expression->arguments.more_named, fn);
}

/// A text that is part of the template.
bool is_constant_text(const Expression& expression, std::string_view text) {
  return expression.kind == Expression::Kind::kConstant && expression.constant.is_text() && expression.constant.text() == text;
}

bool is_called(const Expression& expression, std::string_view name) {
  switch (expression.kind) {
    case Expression::Kind::kVariable:
    case Expression::Kind::kAttribute: return expression.name->bytes == name;
    case Expression::Kind::kItem: return is_constant_text(*expression.parts[1], name);
    case Expression::Kind::kFilter: return expression.parts[0] && is_called(*expression.parts[0], name);
    case Expression::Kind::kSlice: return is_called(*expression.parts[0], name);
    default: return false;
  }
}

}  // namespace

void walk(const Block& block, const OnStatement& on_statement, const OnExpression& on_expression) {
  for (const Statement& statement : block) {
    if (on_statement) on_statement(statement);
    if (on_expression) {
      for (const ExpressionPtr& expression : statement.expressions) walk_expression(expression, on_expression);
    }
    for (const Block& branch : statement.branches) walk(branch, on_statement, on_expression);
    if (!statement.macro) continue;
    if (on_expression) {
      for (const Parameter& parameter : statement.macro->parameters) walk_expression(parameter.default_value, on_expression);
    }
    walk(statement.macro->body, on_statement, on_expression);
  }
}

bool uses_variable(const Block& block, std::string_view name) {
  bool found = false;
  walk(block, {}, [&](const Expression& expression) {
    found = found || (expression.kind == Expression::Kind::kVariable && expression.name->bytes == name);
  });
  return found;
}

bool loops_over(const Block& block, std::string_view name) {
  bool found = false;
  walk(block,
       [&](const Statement& statement) {
         found = found || (statement.kind == Statement::Kind::kFor && is_called(*statement.expressions[0], name));
       },
       {});
  return found;
}

}  // namespace ferry::jinja

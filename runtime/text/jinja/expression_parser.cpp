#include "runtime/text/jinja/expression_parser.h"

#include <algorithm>

#include "runtime/text/jinja/natives.h"
#include "runtime/text/jinja/text_parts.h"

namespace ferry::jinja {
namespace {

using Kind = Expression::Kind;
using Op = Expression::Op;
using Comparison = Expression::Comparison;

TextPtr shared_text(std::string bytes) {
  auto text = std::make_shared<Text>();
  text->bytes = std::move(bytes);
  num_code_points(*text);  // templates are shared between threads: nothing in them is counted later
  return text;
}

void count_depth(const CallArguments& arguments, int& depth) {
  for (const ExpressionPtr& part : arguments.positional) depth = std::max(depth, part->depth);
  for (const auto& [name, part] : arguments.named) depth = std::max(depth, part->depth);
  for (const ExpressionPtr* part : {&arguments.more_positional, &arguments.more_named})
    if (*part) depth = std::max(depth, (*part)->depth);
}

}  // namespace

std::unique_ptr<Expression> ExpressionParser::make(Kind kind, int line) const {
  auto made = std::make_unique<Expression>();
  made->kind = kind;
  made->line = line;
  return made;
}

ExpressionPtr ExpressionParser::finish(std::unique_ptr<Expression> made) const {
  int depth = 0;
  for (const ExpressionPtr& part : made->parts)
    if (part) depth = std::max(depth, part->depth);
  count_depth(made->arguments, depth);
  made->depth = depth + 1;
  const int allowed = stream_.limits().nesting;
  if (made->depth > allowed) throw SyntaxFault{"it is nested deeper than " + std::to_string(allowed), made->line};
  return made;
}

ExpressionPtr ExpressionParser::constant(Value value, int line) const {
  auto made = make(Kind::kConstant, line);
  made->constant = std::move(value);
  return made;
}

ExpressionPtr ExpressionParser::pair(Kind kind, ExpressionPtr first, ExpressionPtr second, int line) const {
  auto made = make(kind, line);
  made->parts.push_back(std::move(first));
  made->parts.push_back(std::move(second));
  return finish(std::move(made));
}

ExpressionPtr ExpressionParser::parse(bool takes_condition) {
  const TokenStream::Level level(stream_);
  return takes_condition ? parse_condition() : parse_or();
}

ExpressionPtr ExpressionParser::parse_condition() {
  const int line = stream_.current().line;
  ExpressionPtr expression = parse_or();
  while (stream_.skip_name("if")) {
    auto made = make(Kind::kCondition, line);
    made->parts.push_back(std::move(expression));
    made->parts.push_back(parse_or());
    made->parts.push_back(stream_.skip_name("else") ? parse() : nullptr);
    expression = finish(std::move(made));
  }
  return expression;
}

ExpressionPtr ExpressionParser::parse_or() {
  const int line = stream_.current().line;
  ExpressionPtr left = parse_and();
  if (!stream_.is_name("or")) return left;
  auto made = make(Kind::kOr, line);
  made->parts.push_back(std::move(left));
  while (stream_.skip_name("or")) made->parts.push_back(parse_and());
  return finish(std::move(made));
}

ExpressionPtr ExpressionParser::parse_and() {
  const int line = stream_.current().line;
  ExpressionPtr left = parse_not();
  if (!stream_.is_name("and")) return left;
  auto made = make(Kind::kAnd, line);
  made->parts.push_back(std::move(left));
  while (stream_.skip_name("and")) made->parts.push_back(parse_not());
  return finish(std::move(made));
}

ExpressionPtr ExpressionParser::parse_not() {
  if (!stream_.is_name("not")) return parse_comparison();
  const TokenStream::Level level(stream_);
  auto made = make(Kind::kNot, stream_.next().line);
  made->parts.push_back(parse_not());
  return finish(std::move(made));
}

bool ExpressionParser::take_comparison(Comparison& comparison) {
  constexpr std::pair<const char*, Comparison> kOperators[] = {{"==", Comparison::kEqual},  {"!=", Comparison::kNotEqual},
                                                               {"<", Comparison::kLess},    {"<=", Comparison::kLessEqual},
                                                               {">", Comparison::kGreater}, {">=", Comparison::kGreaterEqual}};
  for (const auto& [op, meaning] : kOperators) {
    if (!stream_.skip_operator(op)) continue;
    comparison = meaning;
    return true;
  }
  if (stream_.skip_name("in")) {
    comparison = Comparison::kIn;
    return true;
  }
  const Token& following = stream_.following();
  if (!stream_.is_name("not") || following.kind != Token::Kind::kName || following.text != "in") return false;
  stream_.next();
  stream_.next();
  comparison = Comparison::kNotIn;
  return true;
}

ExpressionPtr ExpressionParser::parse_comparison() {
  const int line = stream_.current().line;
  ExpressionPtr left = parse_sum();
  Comparison comparison{};
  if (!take_comparison(comparison)) return left;
  auto made = make(Kind::kCompare, line);
  made->parts.push_back(std::move(left));
  do {
    made->comparisons.push_back(comparison);
    made->parts.push_back(parse_sum());
  } while (take_comparison(comparison));
  return finish(std::move(made));
}

ExpressionPtr ExpressionParser::parse_sum() {
  ExpressionPtr left = parse_concat();
  while (stream_.is_operator("+") || stream_.is_operator("-")) {
    const Token& token = stream_.next();
    auto made = make(Kind::kBinary, token.line);
    made->op = token.text == "+" ? Op::kAdd : Op::kSubtract;
    made->parts.push_back(std::move(left));
    made->parts.push_back(parse_concat());
    left = finish(std::move(made));
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_concat() {
  const int line = stream_.current().line;
  ExpressionPtr left = parse_product();
  if (!stream_.is_operator("~")) return left;
  auto made = make(Kind::kConcat, line);
  made->parts.push_back(std::move(left));
  while (stream_.skip_operator("~")) made->parts.push_back(parse_product());
  return finish(std::move(made));
}

ExpressionPtr ExpressionParser::parse_product() {
  constexpr std::pair<const char*, Op> kOperators[] = {
      {"*", Op::kMultiply}, {"/", Op::kDivide}, {"//", Op::kFloorDivide}, {"%", Op::kModulo}};
  ExpressionPtr left = parse_power();
  while (true) {
    const auto* found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                     [&](const auto& known) { return stream_.is_operator(known.first); });
    if (found == std::end(kOperators)) return left;
    auto made = make(Kind::kBinary, stream_.next().line);
    made->op = found->second;
    made->parts.push_back(std::move(left));
    made->parts.push_back(parse_power());
    left = finish(std::move(made));
  }
}

ExpressionPtr ExpressionParser::parse_power() {
  ExpressionPtr left = parse_unary(true);
  while (stream_.is_operator("**")) {
    auto made = make(Kind::kBinary, stream_.next().line);
    made->op = Op::kPower;
    made->parts.push_back(std::move(left));
    made->parts.push_back(parse_unary(true));
    left = finish(std::move(made));
  }
  return left;
}

/// A sign binds more loosely than attributes and calls, and than filters only where it is the outermost: -1|abs is (-1)|abs.
ExpressionPtr ExpressionParser::parse_unary(bool takes_filters) {
  const TokenStream::Level level(stream_);
  ExpressionPtr expression;
  if (stream_.is_operator("-") || stream_.is_operator("+")) {
    const Token& token = stream_.next();
    auto made = make(token.text == "-" ? Kind::kNegate : Kind::kPlus, token.line);
    made->parts.push_back(parse_unary(false));
    expression = finish(std::move(made));
  } else {
    expression = parse_primary();
  }
  expression = parse_postfix(std::move(expression));
  return takes_filters ? parse_filter_chain(std::move(expression)) : std::move(expression);
}

ExpressionPtr ExpressionParser::parse_primary() {
  const Token& token = stream_.current();
  switch (token.kind) {
    case Token::Kind::kName: return parse_name();
    case Token::Kind::kString: return parse_strings();
    case Token::Kind::kInteger: return constant(Value::integer(stream_.next().integer), token.line);
    case Token::Kind::kFloat: return constant(stream_.next().number, token.line);
    default: break;
  }
  if (stream_.is_operator("[")) return parse_list();
  if (stream_.is_operator("{")) return parse_dict();
  if (!stream_.skip_operator("(")) stream_.refuse_token("an expression");
  ExpressionPtr inner = parse_tuple(true, true);
  stream_.expect_operator(")");
  return inner;
}

ExpressionPtr ExpressionParser::parse_name() {
  const Token& token = stream_.next();
  if (token.text == "true" || token.text == "True") return constant(true, token.line);
  if (token.text == "false" || token.text == "False") return constant(false, token.line);
  if (token.text == "none" || token.text == "None") return constant(None(), token.line);
  auto made = make(Kind::kVariable, token.line);
  made->name = shared_text(token.text);
  return made;
}

/// Strings beside each other are one.
ExpressionPtr ExpressionParser::parse_strings() {
  const int line = stream_.current().line;
  std::string text;
  while (stream_.is(Token::Kind::kString)) text += stream_.next().text;
  return constant(shared_text(std::move(text)), line);
}

bool ExpressionParser::ends_tuple() const {
  return stream_.is(Token::Kind::kOutputEnd) || stream_.is(Token::Kind::kBlockEnd) || stream_.is_operator(")") ||
         (stream_.is_name("recursive") && stream_.following().kind == Token::Kind::kBlockEnd);
}

ExpressionPtr ExpressionParser::parse_tuple(bool takes_condition, bool is_in_parentheses) {
  auto made = make(Kind::kTuple, stream_.current().line);
  bool is_tuple = false;
  while (!ends_tuple() || (made->parts.empty() && stream_.is_name("recursive"))) {
    made->parts.push_back(parse(takes_condition));
    if (!stream_.skip_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !made->parts.empty()) return std::move(made->parts.front());
  if (!is_tuple && !is_in_parentheses) stream_.refuse_token("an expression");
  return finish(std::move(made));
}

ExpressionPtr ExpressionParser::parse_list() {
  auto made = make(Kind::kList, stream_.next().line);
  while (!stream_.is_operator("]")) {
    made->parts.push_back(parse());
    if (!stream_.skip_operator(",")) break;
  }
  stream_.expect_operator("]");
  return finish(std::move(made));
}

ExpressionPtr ExpressionParser::parse_dict() {
  auto made = make(Kind::kDict, stream_.next().line);
  while (!stream_.is_operator("}")) {
    made->parts.push_back(parse());
    stream_.expect_operator(":");
    made->parts.push_back(parse());
    if (!stream_.skip_operator(",")) break;
  }
  stream_.expect_operator("}");
  return finish(std::move(made));
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr expression) {
  while (true) {
    if (stream_.is_operator(".") || stream_.is_operator("[")) {
      expression = parse_subscript(std::move(expression));
    } else if (stream_.is_operator("(")) {
      expression = parse_call(std::move(expression));
    } else {
      return expression;
    }
  }
}

ExpressionPtr ExpressionParser::parse_filter_chain(ExpressionPtr expression) {
  while (true) {
    if (stream_.skip_operator("|")) {
      expression = parse_filter(std::move(expression));
    } else if (stream_.is_name("is")) {
      expression = parse_test(std::move(expression));
    } else if (stream_.is_operator("(")) {
      expression = parse_call(std::move(expression));
    } else {
      return expression;
    }
  }
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr expression) {
  const Token& token = stream_.next();
  if (token.text == ".") {
    if (stream_.is(Token::Kind::kInteger)) {
      ExpressionPtr index = constant(Value::integer(stream_.current().integer), stream_.current().line);
      stream_.next();
      return pair(Kind::kItem, std::move(expression), std::move(index), token.line);
    }
    auto made = make(Kind::kAttribute, token.line);
    made->name = shared_text(stream_.expect(Token::Kind::kName, "a name or a number").text);
    made->parts.push_back(std::move(expression));
    return finish(std::move(made));
  }
  ExpressionPtr item = parse_subscribed(std::move(expression), token.line);
  stream_.expect_operator("]");
  return item;
}

/// What stands in brackets: a slice, or an expression.
ExpressionPtr ExpressionParser::parse_subscribed(ExpressionPtr object, int line) {
  const auto ends_part = [&] { return stream_.is_operator(":") || stream_.is_operator("]") || stream_.is_operator(","); };
  ExpressionPtr first = ends_part() ? nullptr : parse();
  if (first && !stream_.is_operator(":")) {
    if (!stream_.is_operator(",")) return pair(Kind::kItem, std::move(object), std::move(first), line);
    auto tuple = make(Kind::kTuple, line);
    tuple->parts.push_back(std::move(first));
    while (stream_.skip_operator(",")) tuple->parts.push_back(parse());
    return pair(Kind::kItem, std::move(object), finish(std::move(tuple)), line);
  }
  stream_.expect_operator(":");
  auto made = make(Kind::kSlice, line);
  made->parts.push_back(std::move(object));
  made->parts.push_back(std::move(first));
  made->parts.push_back(ends_part() ? nullptr : parse());
  const bool has_step = stream_.skip_operator(":");
  made->parts.push_back(has_step && !ends_part() ? parse() : nullptr);
  return finish(std::move(made));
}

ExpressionPtr ExpressionParser::parse_call(ExpressionPtr callee) {
  auto made = make(Kind::kCall, stream_.current().line);
  made->parts.push_back(std::move(callee));
  made->arguments = parse_arguments();
  return finish(std::move(made));
}

CallArguments ExpressionParser::parse_arguments() {
  CallArguments arguments;
  const int line = stream_.current().line;
  const auto require = [&](bool is_fine) {
    if (!is_fine) throw SyntaxFault{"the arguments of a call are in the wrong order", line};
  };
  stream_.expect_operator("(");
  while (!stream_.is_operator(")")) {
    const Token& following = stream_.following();
    if (stream_.skip_operator("*")) {
      require(!arguments.more_positional && !arguments.more_named);
      arguments.more_positional = parse();
    } else if (stream_.skip_operator("**")) {
      require(!arguments.more_named);
      arguments.more_named = parse();
    } else if (stream_.is(Token::Kind::kName) && following.kind == Token::Kind::kOperator && following.text == "=") {
      require(!arguments.more_named);
      std::string name = stream_.next().text;
      stream_.next();
      arguments.named.emplace_back(std::move(name), parse());
    } else {
      require(!arguments.more_positional && !arguments.more_named && arguments.named.empty());
      arguments.positional.push_back(parse());
    }
    if (!stream_.skip_operator(",")) break;
  }
  stream_.expect_operator(")");
  return arguments;
}

std::string ExpressionParser::parse_dotted_name() {
  std::string name = stream_.expect(Token::Kind::kName, "a name").text;
  while (stream_.skip_operator(".")) name += "." + stream_.expect(Token::Kind::kName, "a name").text;
  return name;
}

ExpressionPtr ExpressionParser::parse_filter(ExpressionPtr input) {
  auto made = make(Kind::kFilter, stream_.current().line);
  const std::string name = parse_dotted_name();
  made->native = find_filter(name);
  made->name = shared_text(name);
  made->parts.push_back(std::move(input));
  if (stream_.is_operator("(")) made->arguments = parse_arguments();
  return finish(std::move(made));
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr input) {
  while (stream_.skip_operator("|")) input = parse_filter(std::move(input));
  return input;
}

bool ExpressionParser::begins_test_argument() const {
  switch (stream_.current().kind) {
    case Token::Kind::kName: return !stream_.is_name("else") && !stream_.is_name("or") && !stream_.is_name("and");
    case Token::Kind::kString:
    case Token::Kind::kInteger:
    case Token::Kind::kFloat: return true;
    default: return stream_.is_operator("[") || stream_.is_operator("{");
  }
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr expression) {
  const int line = stream_.next().line;
  const bool is_negated = stream_.skip_name("not");
  auto made = make(Kind::kTest, line);
  const std::string name = parse_dotted_name();
  made->native = find_test(name);
  made->name = shared_text(name);
  made->parts.push_back(std::move(expression));
  if (stream_.is_operator("(")) {
    made->arguments = parse_arguments();
  } else if (begins_test_argument()) {
    if (stream_.is_name("is")) stream_.refuse("tests cannot be chained");
    const TokenStream::Level level(stream_);
    made->arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  ExpressionPtr test = finish(std::move(made));
  if (!is_negated) return test;
  auto negated = make(Kind::kNot, line);
  negated->parts.push_back(std::move(test));
  return finish(std::move(negated));
}

Target ExpressionParser::parse_single_target(bool takes_attributes) {
  const TokenStream::Level level(stream_);
  Target target{.name = "", .attribute = "", .parts = {}, .line = stream_.current().line};
  if (stream_.skip_operator("(")) {
    target = parse_target(takes_attributes);
    stream_.expect_operator(")");
    return target;
  }
  target.name = stream_.expect(Token::Kind::kName, "a name").text;
  for (const char* fixed : {"true", "True", "false", "False", "none", "None"})
    if (target.name == fixed) stream_.refuse("'" + target.name + "' cannot be assigned to");
  if (takes_attributes && stream_.skip_operator(".")) target.attribute = stream_.expect(Token::Kind::kName, "a name").text;
  return target;
}

Target ExpressionParser::parse_target(bool takes_attributes) {
  Target first = parse_single_target(takes_attributes);
  if (!stream_.is_operator(",")) return first;
  Target tuple{.name = "", .attribute = "", .parts = {}, .line = first.line};
  tuple.parts.push_back(std::move(first));
  while (stream_.skip_operator(",") && !stream_.is_name("in") && !stream_.is_operator("=") && !stream_.is_operator(")"))
    tuple.parts.push_back(parse_single_target(takes_attributes));
  return tuple;
}

}  // namespace ferry::jinja

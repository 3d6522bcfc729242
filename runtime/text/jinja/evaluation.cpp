#include <algorithm>

#include "runtime/text/jinja/interpreter.h"
#include "runtime/text/jinja/natives.h"
#include "runtime/text/jinja/operators.h"
#include "runtime/text/jinja/printing.h"

// How the interpreter evaluates expressions.

namespace ferry::jinja {
namespace {

using Kind = Expression::Kind;

/// A function that templates have from the start.
class Function final : public Object {
 public:
  explicit Function(const Native& native) : native_(native) {}
  std::string printed() const override { return std::string("<function ") + native_.name + ">"; }
  const char* type_name() const override { return "function"; }
  Value call(Interpreter& interpreter, Arguments& arguments) override { return native_.call(interpreter, Value(), arguments); }

 private:
  const Native& native_;
};

}  // namespace

Value Interpreter::evaluate(const ExpressionPtr& expression, const Scope& scope, const Value* filtered) {
  switch (expression->kind) {
    case Kind::kConstant: heap_.work(); return expression->constant;
    case Kind::kVariable: heap_.work(); return variable(*expression, scope);
    default: {
      const Level level(*this);
      return evaluate_here(*expression, scope, filtered);
    }
  }
}

Value Interpreter::evaluate_here(const Expression& expression, const Scope& scope, const Value* filtered) {
  const auto part = [&](std::size_t i) { return evaluate(expression.parts[i], scope); };
  const auto at_line = [&] { line_ = expression.line; };
  switch (expression.kind) {
    case Kind::kConstant: return expression.constant;
    case Kind::kVariable: return variable(expression, scope);
    case Kind::kList: return heap_.list(evaluate_all(expression.parts, scope));
    case Kind::kTuple: return heap_.tuple(evaluate_all(expression.parts, scope));
    case Kind::kDict: return evaluate_dict(expression, scope);
    case Kind::kAttribute: {
      const Value object = part(0);
      at_line();
      return attribute_of(object, expression.name, *this);
    }
    case Kind::kItem: {
      const Value object = part(0), key = part(1);
      at_line();
      return item_of(object, key, *this);
    }
    case Kind::kSlice: return evaluate_slice(expression, scope);
    case Kind::kCall: return evaluate_call(expression, scope);
    case Kind::kFilter:
    case Kind::kTest: return evaluate_native(expression, scope, filtered);
    case Kind::kNot: return !is_true(part(0));
    case Kind::kNegate:
    case Kind::kPlus: {
      const Value value = part(0);
      at_line();
      return expression.kind == Kind::kNegate ? negate(value) : plus(value);
    }
    case Kind::kAnd:
    case Kind::kOr: return evaluate_logic(expression, scope);
    case Kind::kBinary: {
      const Value a = part(0), b = part(1);
      at_line();
      return binary(expression.op, a, b, heap_);
    }
    case Kind::kCompare: return evaluate_comparison(expression, scope);
    case Kind::kConcat: return evaluate_concat(expression, scope);
    case Kind::kCondition: return evaluate_condition(expression, scope);
  }
  return {};
}

Value Interpreter::variable(const Expression& expression, const Scope& scope) {
  if (const Value* found = scope->find(expression.name->bytes)) return *found;
  if (const Native* function = find_function(expression.name->bytes)) return ObjectPtr(heap_.object<Function>(*function));
  return Undefined{.of = nullptr, .name = expression.name, .is_message = false};
}

std::vector<Value> Interpreter::evaluate_all(const std::vector<ExpressionPtr>& parts, const Scope& scope) {
  std::vector<Value> values;
  values.reserve(parts.size());
  for (const ExpressionPtr& part : parts) values.push_back(evaluate(part, scope));
  return values;
}

Value Interpreter::evaluate_dict(const Expression& expression, const Scope& scope) {
  std::vector<Dict::Entry> entries;
  for (std::size_t i = 0; i + 1 < expression.parts.size(); i += 2) {
    Value key = evaluate(expression.parts[i], scope);
    entries.emplace_back(std::move(key), evaluate(expression.parts[i + 1], scope));
  }
  line_ = expression.line;
  return heap_.dict(std::move(entries));
}

Value Interpreter::evaluate_slice(const Expression& expression, const Scope& scope) {
  std::vector<Value> parts;
  for (const ExpressionPtr& part : expression.parts) parts.push_back(part ? evaluate(part, scope) : Value(None()));
  line_ = expression.line;
  for (std::size_t i = 1; i < parts.size(); ++i)
    if (parts[i].is_undefined()) fail_undefined(parts[i]);
  return slice_of(parts[0], parts[1], parts[2], parts[3], heap_);
}

/// `and` gives the first value that is false, `or` the first that is true, else the last.
Value Interpreter::evaluate_logic(const Expression& expression, const Scope& scope) {
  const bool stops_at = expression.kind == Kind::kOr;
  Value value;
  for (const ExpressionPtr& part : expression.parts) {
    value = evaluate(part, scope);
    if (is_true(value) == stops_at) break;
  }
  return value;
}

/// a < b < c is a < b and b < c, with b evaluated once.
Value Interpreter::evaluate_comparison(const Expression& expression, const Scope& scope) {
  Value left = evaluate(expression.parts[0], scope);
  for (std::size_t i = 0; i < expression.comparisons.size(); ++i) {
    Value right = evaluate(expression.parts[i + 1], scope);
    line_ = expression.line;
    if (!holds(expression.comparisons[i], left, right, heap_)) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::evaluate_concat(const Expression& expression, const Scope& scope) {
  std::string text;
  for (const ExpressionPtr& part : expression.parts) append_text(evaluate(part, scope), text, heap_);
  return heap_.text(std::move(text));
}

Value Interpreter::evaluate_condition(const Expression& expression, const Scope& scope) {
  if (is_true(evaluate(expression.parts[1], scope))) return evaluate(expression.parts[0], scope);
  if (expression.parts[2]) return evaluate(expression.parts[2], scope);
  return heap_.undefined("the inline if-expression evaluated to false and no else section was defined.");
}

Value Interpreter::evaluate_native(const Expression& expression, const Scope& scope, const Value* filtered) {
  const ExpressionPtr& input = expression.parts[0];
  const Value value = input ? evaluate(input, scope, filtered) : *filtered;
  Arguments arguments = evaluate_arguments(expression.arguments, scope);
  line_ = expression.line;
  const bool is_filter = expression.kind == Kind::kFilter;
  if (expression.native == nullptr) {
    fail(std::string(is_filter ? "there is no filter '" : "there is no test '") + expression.name->bytes + "'");
  }
  return expression.native->call(*this, value, arguments);
}

/// A method is called without being made a value first.
Value Interpreter::evaluate_call(const Expression& expression, const Scope& scope, const Value* caller) {
  const ExpressionPtr& callee = expression.parts[0];
  const Native* method = nullptr;
  Value target;
  if (callee->kind == Kind::kAttribute) {
    const Value object = evaluate(callee->parts[0], scope);
    method = find_method(object, callee->name->bytes);
    line_ = callee->line;
    target = method != nullptr ? object : attribute_of(object, callee->name, *this);
  } else {
    target = evaluate(callee, scope);
  }
  Arguments arguments = evaluate_arguments(expression.arguments, scope);
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  line_ = expression.line;
  return method != nullptr ? method->call(*this, target, arguments) : call(target, arguments);
}

Arguments Interpreter::evaluate_arguments(const CallArguments& given, const Scope& scope) {
  Arguments arguments;
  arguments.positional = evaluate_all(given.positional, scope);
  for (const auto& [name, part] : given.named) arguments.named.emplace_back(name, evaluate(part, scope));
  if (given.more_positional) {
    std::vector<Value> more = items_of(evaluate(given.more_positional, scope), heap_);
    arguments.positional.insert(arguments.positional.end(), more.begin(), more.end());
  }
  if (!given.more_named) return arguments;
  const Value more = evaluate(given.more_named, scope);
  if (more.is_undefined()) fail_undefined(more);
  if (!more.is<DictPtr>()) fail(std::string("argument after ** must be a mapping, not ") + jinja::type_name(more));
  for (const auto& [name, value] : more.dict().entries) {
    if (!name.is_text()) fail("keywords must be strings");
    heap_.read(name.text().size());
    arguments.named.emplace_back(name.text(), value);
  }
  return arguments;
}

Value Interpreter::call(const Value& callee, Arguments& arguments) {
  const Level level(*this);
  if (callee.is_undefined()) fail_undefined(callee);
  if (!callee.is<ObjectPtr>()) fail(std::string("'") + jinja::type_name(callee) + "' object is not callable");
  const ObjectPtr object = callee.get<ObjectPtr>();  // a call may change what holds it
  return object->call(*this, arguments);
}

Value Interpreter::filter(std::string_view name, const Value& value, Arguments& arguments) {
  const Level level(*this);
  const Native* native = find_filter(name);
  if (native == nullptr) fail("there is no filter '" + std::string(name) + "'");
  return native->call(*this, value, arguments);
}

bool Interpreter::test(std::string_view name, const Value& value, Arguments& arguments) {
  const Level level(*this);
  const Native* native = find_test(name);
  if (native == nullptr) fail("there is no test '" + std::string(name) + "'");
  return is_true(native->call(*this, value, arguments));
}

}  // namespace ferry::jinja

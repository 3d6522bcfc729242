#include <algorithm>
#include <array>
#include <string_view>

#include "runtime/text/jinja/interpreter.h"
#include "runtime/text/jinja/natives.h"
#include "runtime/text/jinja/numbers.h"
#include "runtime/text/jinja/operators.h"
#include "runtime/text/jinja/printing.h"
#include "runtime/text/unicode_case.h"

// What can stand behind `is` (jinja2/tests.py of 3.1).

namespace ferry::jinja {
namespace {

using Comparison = Expression::Comparison;
using Form = Sequence::Form;

/// A test without arguments.
template <bool (*fn)(const Value&)>
Value plain(Interpreter& /*interpreter*/, const Value& self, Arguments& arguments) {
  const Bound bound("the test", arguments, {});
  return fn(self);
}

template <Comparison comparison>
Value compared(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("the test", arguments, {"other"}, 1);
  return holds(comparison, self, bound[0], interpreter.heap());
}

bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_undefined(const Value& value) { return value.is_undefined(); }
bool is_none(const Value& value) { return value.is_none(); }
bool is_boolean(const Value& value) { return value.is<bool>(); }
bool is_true_itself(const Value& value) { return value.is<bool>() && value.get<bool>(); }
bool is_false_itself(const Value& value) { return value.is<bool>() && !value.get<bool>(); }
bool is_integer(const Value& value) { return value.is<Int>(); }
bool is_float(const Value& value) { return value.is<double>(); }
bool is_number(const Value& value) { return value.is_number(); }
bool is_string(const Value& value) { return value.is_text(); }
bool is_mapping(const Value& value) { return value.is<DictPtr>(); }
bool is_callable(const Value& value) {
  return value.is_undefined() || (value.is<ObjectPtr>() && value.get<ObjectPtr>()->is_callable());
}
bool is_escaped(const Value& value) { return value.is_text() && value.get<TextPtr>()->is_safe; }

/// What has a length and items by number or key.
bool is_sequence(const Value& value) {
  if (value.is_text() || value.is<DictPtr>() || value.is_undefined()) return true;
  return value.is<SequencePtr>() && value.sequence().form != Form::kView && value.sequence().form != Form::kIterator;
}

Value remainder(const Value& self, const Value& number, Interpreter& interpreter) {
  return binary(Expression::Op::kModulo, self, number, interpreter.heap());
}

Value odd(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("odd", arguments, {});
  return equal(remainder(self, Value::integer(2), interpreter), Value::integer(1), interpreter.heap());
}

Value even(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("even", arguments, {});
  return equal(remainder(self, Value::integer(2), interpreter), Value::integer(0), interpreter.heap());
}

Value divisible_by(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("divisibleby", arguments, {"num"}, 1);
  return equal(remainder(self, bound[0], interpreter), Value::integer(0), interpreter.heap());
}

/// str.islower() and .isupper(): something has case, and nothing has the other one.
template <bool (*wanted)(char32_t)>
Value has_case(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("the test", arguments, {});
  const std::string text = text_of(self, interpreter.heap());
  bool has_one = false;
  for (std::string_view rest = text; !rest.empty();) {
    const char32_t c = take_character(rest);
    if (is_cased(c) && !wanted(c)) return false;
    has_one = has_one || wanted(c);
  }
  return has_one;
}

Value same_as(Interpreter& /*interpreter*/, const Value& self, Arguments& arguments) {
  const Bound bound("sameas", arguments, {"other"}, 1);
  return same(self, bound[0]);
}

Value filter_exists(Interpreter& /*interpreter*/, const Value& self, Arguments& arguments) {
  const Bound bound("filter", arguments, {});
  return self.is_text() && find_filter(self.text()) != nullptr;
}

Value test_exists(Interpreter& /*interpreter*/, const Value& self, Arguments& arguments) {
  const Bound bound("test", arguments, {});
  return self.is_text() && find_test(self.text()) != nullptr;
}

constexpr std::array<Native, 39> kTests = {{
    {"!=", compared<Comparison::kNotEqual>, Reads::kNothing},
    {"<", compared<Comparison::kLess>, Reads::kNothing},
    {"<=", compared<Comparison::kLessEqual>, Reads::kNothing},
    {"==", compared<Comparison::kEqual>, Reads::kNothing},
    {">", compared<Comparison::kGreater>, Reads::kNothing},
    {">=", compared<Comparison::kGreaterEqual>, Reads::kNothing},
    {"boolean", plain<is_boolean>, Reads::kNothing},
    {"callable", plain<is_callable>, Reads::kNothing},
    {"defined", plain<is_defined>, Reads::kNothing},
    {"divisibleby", divisible_by},
    {"eq", compared<Comparison::kEqual>, Reads::kNothing},
    {"equalto", compared<Comparison::kEqual>, Reads::kNothing},
    {"escaped", plain<is_escaped>, Reads::kNothing},
    {"even", even},
    {"false", plain<is_false_itself>, Reads::kNothing},
    {"filter", filter_exists},
    {"float", plain<is_float>, Reads::kNothing},
    {"ge", compared<Comparison::kGreaterEqual>, Reads::kNothing},
    {"greaterthan", compared<Comparison::kGreater>, Reads::kNothing},
    {"gt", compared<Comparison::kGreater>, Reads::kNothing},
    {"in", compared<Comparison::kIn>, Reads::kNothing},
    {"integer", plain<is_integer>, Reads::kNothing},
    {"iterable", plain<is_iterable>, Reads::kNothing},
    {"le", compared<Comparison::kLessEqual>, Reads::kNothing},
    {"lessthan", compared<Comparison::kLess>, Reads::kNothing},
    {"lower", has_case<is_lower>},
    {"lt", compared<Comparison::kLess>, Reads::kNothing},
    {"mapping", plain<is_mapping>, Reads::kNothing},
    {"ne", compared<Comparison::kNotEqual>, Reads::kNothing},
    {"none", plain<is_none>, Reads::kNothing},
    {"number", plain<is_number>, Reads::kNothing},
    {"odd", odd},
    {"sameas", same_as, Reads::kNothing},
    {"sequence", plain<is_sequence>, Reads::kNothing},
    {"string", plain<is_string>, Reads::kNothing},
    {"test", test_exists},
    {"true", plain<is_true_itself>, Reads::kNothing},
    {"undefined", plain<is_undefined>, Reads::kNothing},
    {"upper", has_case<is_upper>},
}};

}  // namespace

const Native* find_test(std::string_view name) {
  const auto* found = std::find_if(kTests.begin(), kTests.end(), [&](const Native& test) { return test.name == name; });
  return found != kTests.end() ? found : nullptr;
}

}  // namespace ferry::jinja

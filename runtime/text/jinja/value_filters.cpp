#include <array>
#include <cmath>

#include "runtime/text/jinja/interpreter.h"
#include "runtime/text/jinja/natives.h"
#include "runtime/text/jinja/numbers.h"
#include "runtime/text/jinja/operators.h"
#include "runtime/text/jinja/printing.h"

// Filters of numbers and of any value (jinja2/filters.py of 3.1; tojson is that of transformers).

namespace ferry::jinja {
namespace {

void require_number(const Value& value, const char* what) {
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_number()) fail(std::string(what) + ": a number is needed, not " + type_name(value));
}

Value absolute(Interpreter& /*interpreter*/, const Value& self, Arguments& arguments) {
  const Bound bound("abs", arguments, {});
  require_number(self, "abs");
  if (self.is<double>()) return std::abs(self.get<double>());
  const Int number = *self.as_int();
  return Value::integer(number < 0 ? -number : number);
}

Value attribute(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("attr", arguments, {"name"}, 1);
  const Value name = interpreter.heap().text(std::string(bound.text(0, "")));
  if (self.is<DictPtr>() && find_method(self, name.text()) == nullptr)
    return Undefined{.of = "dict", .name = name.get<TextPtr>(), .is_message = false};
  return attribute_of(self, name.get<TextPtr>(), interpreter);
}

Value default_value(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("default", arguments, {"default_value", "boolean"});
  const bool is_missing = self.is_undefined() || (bound.flag(1, false) && !is_true(self));
  if (!is_missing) return self;
  return bound.has(0) ? bound[0] : interpreter.heap().text("");
}

Value length(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("length", arguments, {});
  return Value::integer(length_of(self, interpreter.heap()));
}

Value to_int(Interpreter& /*interpreter*/, const Value& self, Arguments& arguments) {
  const Bound bound("int", arguments, {"default", "base"});
  const Value otherwise = bound.value(0, Value::integer(0));
  if (self.is_undefined()) fail_undefined(self);
  if (const std::optional<Int> number = self.as_int()) return Value::integer(*number);
  std::optional<double> number;
  if (self.is_text()) {
    const int64_t base = bound.integer(1, 10);
    if (base == 0 || (base >= 2 && base <= 36)) {
      if (const std::optional<Int> read = parse_int(self.text(), static_cast<int>(base))) return Value::integer(*read);
    }
    number = parse_float(self.text());
  } else if (self.is<double>()) {
    number = self.get<double>();
  }
  if (!number || !std::isfinite(*number)) return otherwise;
  return Value::integer(truncate_float(*number));
}

Value to_float(Interpreter& /*interpreter*/, const Value& self, Arguments& arguments) {
  const Bound bound("float", arguments, {"default"});
  if (self.is_undefined()) fail_undefined(self);
  if (self.is_number()) return to_double(self);
  if (self.is_text()) {
    if (const std::optional<double> number = parse_float(self.text())) return *number;
  }
  return bound.value(0, 0.0);
}

Value round(Interpreter& /*interpreter*/, const Value& self, Arguments& arguments) {
  const Bound bound("round", arguments, {"precision", "method"});
  require_number(self, "round");
  const int64_t digits = bound.integer(0, 0);
  const std::string_view method = bound.text(1, "common");
  if (method != "common" && method != "ceil" && method != "floor") fail("method must be common, ceil or floor");
  if (method == "common") {
    if (self.is<double>()) return round_float(self.get<double>(), digits);
    if (digits >= 0) return Value::integer(*self.as_int());
    if (digits < -30) return Value::integer(0);
    const Int unit = power_numbers(Value::integer(10), Value::integer(-digits)).get<Int>();
    const Int number = *self.as_int();
    const Int below = floor_divide_numbers(Value::integer(number), Value::integer(unit)).get<Int>() * unit;
    const Int rest = 2 * (number - below);
    const bool is_up = rest > unit || (rest == unit && below / unit % 2 != 0);
    return Value::integer(is_up ? below + unit : below);
  }
  const Value unit = power_numbers(Value::integer(10), Value::integer(digits));
  const double scaled = to_double(multiply_numbers(self, unit));
  if (!std::isfinite(scaled)) fail("round: cannot convert a float that is not finite");
  return divide_numbers(method == "ceil" ? std::ceil(scaled) : std::floor(scaled), unit);
}

Value to_json(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  Heap& heap = interpreter.heap();
  JsonStyle style{.ensure_ascii = bound.flag(0, false), .sort_keys = bound.flag(3, false)};
  if (bound.has_value(1)) {
    style.indent = bound[1].is_text() ? bound[1].text() : repeat(heap.text(" "), bound.integer(1, 0), heap).text();
    style.between_items = ",";
  }
  if (bound.has_value(2)) {
    const std::vector<Value> separators = items_of(bound[2], heap);
    if (separators.size() != 2 || !separators[0].is_text() || !separators[1].is_text())
      fail("tojson: separators must be two strings");
    style.between_items = separators[0].text();
    style.after_key = separators[1].text();
  }
  return heap.text(json_of(self, style, heap));
}

constexpr std::array<Native, 10> kValueFilters = {{
    {"abs", absolute},
    {"attr", attribute},
    {"count", length, Reads::kNothing},
    {"d", default_value, Reads::kNothing},
    {"default", default_value, Reads::kNothing},
    {"float", to_float},
    {"int", to_int},
    {"length", length, Reads::kNothing},
    {"round", round},
    {"tojson", to_json},
}};

}  // namespace

std::span<const Native> value_filters() { return kValueFilters; }

}  // namespace ferry::jinja

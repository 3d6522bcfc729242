#pragma once

#include "runtime/text/jinja/arguments.h"
#include "runtime/text/jinja/syntax.h"

// Python's operators, as templates see them. All fail with Python's words for values that they do not take.

namespace ferry::jinja {

Value binary(Expression::Op op, const Value& a, const Value& b, Heap& heap);
Value negate(const Value& value);
Value plus(const Value& value);
bool holds(Expression::Comparison comparison, const Value& a, const Value& b, Heap& heap);
/// Python's `item in container`.
bool contains(const Value& container, const Value& item, Heap& heap);

/// object.name: Python's attribute first, an item of a dict second.
Value attribute_of(const Value& object, const TextPtr& name, Interpreter& interpreter);
/// object[key]: the item first, an attribute second.
Value item_of(const Value& object, const Value& key, Interpreter& interpreter);
/// object[start:stop:step]; none and undefined parts are left out.
Value slice_of(const Value& object, const Value& start, const Value& stop, const Value& step, Heap& heap);

/// printf-style formatting: text % arguments.
std::string format_percent(const std::string& format, const Value& arguments, Heap& heap);
/// str.format().
std::string format_braces(const std::string& format, const Arguments& arguments, Interpreter& interpreter);
/// A repeated text or list; fails where that is too much.
Value repeat(const Value& value, Int count, Heap& heap);

}  // namespace ferry::jinja

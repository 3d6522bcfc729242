#pragma once

#include <span>
#include <string_view>

#include "runtime/text/jinja/arguments.h"

// What templates can use without defining it: one table of functions for each kind.

namespace ferry::jinja {

struct Native {
  const char* name;
  /// `self` is the value that is filtered or tested, or whose method it is; undefined for functions.
  Value (*run)(Interpreter& interpreter, const Value& self, Arguments& arguments);
};

/// Null where there is none of this name.
const Native* find_filter(std::string_view name);
const Native* find_test(std::string_view name);
const Native* find_function(std::string_view name);
/// A method of `self`'s type.
const Native* find_method(const Value& self, std::string_view name);
/// Whether Python has a method of this name that would change `self`; the sandbox refuses it.
bool changes_value(const Value& self, std::string_view name);

// The tables, each in the file of its name.
std::span<const Native> text_filters();
std::span<const Native> sequence_filters();
std::span<const Native> value_filters();
std::span<const Native> text_methods();

}  // namespace ferry::jinja

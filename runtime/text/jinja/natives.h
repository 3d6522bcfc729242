#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/text/jinja/arguments.h"

// What templates can use without defining it: one table of functions for each kind.

namespace ferry::jinja {

/// Tells what a native reads of its arguments.
enum class Reads : uint8_t {
  kText,     // perhaps all of their bytes
  kNothing,  // their types and lengths, or what it counts itself
};

class Native {
 public:
  using Run = Value (*)(Interpreter& interpreter, const Value& self, Arguments& arguments);
  constexpr Native(const char* name_given, Run run, Reads reads = Reads::kText) : name(name_given), run_(run), reads_(reads) {}

  /// Runs it, and counts what it is given before. What it makes is counted by the heap. Items of lists are counted where they
  /// are looked at: items_of(), equal(), compare() and hash_of() count them. `self` is the value that is filtered or tested, or
  /// whose method it is; undefined for functions.
  Value call(Interpreter& interpreter, const Value& self, Arguments& arguments) const;

  const char* name;

 private:
  Run run_;
  Reads reads_;
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

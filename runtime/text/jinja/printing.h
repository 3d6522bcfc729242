#pragma once

#include <optional>
#include <string>

#include "runtime/text/jinja/value.h"

// Values as text: Python's str(), repr() and json.dumps().

namespace ferry::jinja {

/// str(): what `{{ value }}` writes.
void append_text(const Value& value, std::string& out, Heap& heap);
std::string text_of(const Value& value, Heap& heap);
std::string repr_of(const Value& value, Heap& heap);

/// The arguments of json.dumps().
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // of one level; without it all is on one line
  std::string between_items = ", ";
  std::string after_key = ": ";
};
/// Fails for values that are not JSON: undefined ones, macros, what filters like map give.
std::string json_of(const Value& value, const JsonStyle& style, Heap& heap);

/// HTML's five special characters as entities.
std::string escape_html(std::string_view text);

}  // namespace ferry::jinja

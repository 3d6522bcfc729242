#include "runtime/base/csv_field.h"

#include <algorithm>
#include <cctype>

#include "runtime/base/quoting.h"

namespace ferry {
namespace {

bool is_formula(std::string_view text) {
  if (text.empty()) return false;
  if (text[0] != '-') return std::string_view("=+@\t\r").find(text[0]) != std::string_view::npos;
  return !std::ranges::all_of(text, [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '.'; });
}

}  // namespace

std::string csv_field(std::string_view text) {
  std::string shown = (is_formula(text) ? "'" : "") + printable_lines(text);
  if (shown.find_first_of(",\"\n") == std::string::npos) return shown;
  std::string quoted = "\"";
  for (const char c : shown) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

}  // namespace ferry

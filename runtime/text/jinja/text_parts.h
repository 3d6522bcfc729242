#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/text/jinja/value.h"

// Characters of well-formed UTF-8 by their number, as Python counts them.

namespace ferry::jinja {

/// Of the first character of `text`, which must not be empty.
inline std::size_t character_bytes(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  const std::size_t num_bytes = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  return num_bytes < text.size() ? num_bytes : text.size();
}

/// Returns the bytes of the last character of `text`, which must not be empty.
std::size_t last_character_bytes(std::string_view text);

int64_t num_code_points(std::string_view text);
/// Counted once for each text.
int64_t num_code_points(const Text& text);

/// The place of character `index`, which may be as many as there are.
std::size_t byte_offset(std::string_view text, int64_t index);

/// The characters from `begin` up to `end`, which are within the text.
std::string_view characters_between(const Text& text, int64_t begin, int64_t end);

/// text[start:stop:step] of Python, for indices within the text: the characters start, start + step, … (`count` of them).
std::string take_characters(const Text& text, int64_t start, int64_t count, int64_t step);

}  // namespace ferry::jinja

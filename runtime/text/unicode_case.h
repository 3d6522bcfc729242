#pragma once

#include <string>
#include <string_view>

// Upper and lower case, and what a character is, as Python's str has it. Text is UTF-8; malformed bytes count as U+FFFD.

namespace ferry {

/// Takes the first character off `text`, which must not be empty.
char32_t take_character(std::string_view& text);

/// Appends its UTF-8; U+FFFD for what is no character.
void append_character(char32_t c, std::string& out);

/// str.upper(), .lower(), .title() and .capitalize(), with the characters whose upper case is longer (\u00df) and the sigma
/// that ends a word.
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);
std::string to_capitalized(std::string_view text);

bool is_lower(char32_t c);
bool is_upper(char32_t c);
bool is_cased(char32_t c);
bool is_letter(char32_t c);
bool is_decimal(char32_t c);
bool is_numeric(char32_t c);
bool is_printable(char32_t c);

}  // namespace ferry

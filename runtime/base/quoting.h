#pragma once

#include <cstddef>
#include <string>
#include <string_view>

// A stranger's text in our messages.

namespace ferry {

/// The first `max_bytes` of `text`, or up to three less: no character of UTF-8 is cut.
std::string whole_characters(std::string_view text, std::size_t max_bytes);

/// `text` for a terminal, which obeys no byte of it: control characters are written as "\x1b", and those that nobody sees or
/// that turn the text behind them as "\u202e".
std::string printable(std::string_view text);
/// The same of several lines: line breaks stay.
std::string printable_lines(std::string_view text);

/// `text` in quotes, its first 120 bytes and fit for one line of a message.
std::string in_quotes(std::string_view text);

}  // namespace ferry

#pragma once

#include <cstddef>
#include <string>
#include <string_view>

// A stranger's text in our messages.

namespace ferry {

/// The first `max_bytes` of `text`, or up to three less: no character of UTF-8 is cut.
std::string whole_characters(std::string_view text, std::size_t max_bytes);

/// `text` in quotes, cut to about 120 bytes and fit for one line of a message.
std::string in_quotes(std::string_view text);

}  // namespace ferry

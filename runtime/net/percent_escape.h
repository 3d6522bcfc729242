#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ferry {

/// The byte of the escape %XX (RFC 3986, section 2.1) with which `text` begins. Nothing if it begins with none.
std::optional<char> percent_escape(std::string_view text);

/// `text` with the byte in place of each escape. A percent sign that begins no escape stays as it is.
std::string percent_decoded(std::string_view text);

}  // namespace ferry

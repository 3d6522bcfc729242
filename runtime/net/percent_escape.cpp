#include "runtime/net/percent_escape.h"

#include <charconv>
#include <cstdint>

namespace ferry {

std::optional<char> percent_escape(std::string_view text) {
  if (text.size() < 3 || text[0] != '%') return std::nullopt;
  uint8_t byte = 0;
  const char* const end = text.data() + 3;
  const auto [last, error] = std::from_chars(text.data() + 1, end, byte, 16);
  return error == std::errc() && last == end ? std::optional(static_cast<char>(byte)) : std::nullopt;
}

std::string percent_decoded(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::optional<char> byte = percent_escape(text.substr(i));
    decoded += byte.value_or(text[i]);
    if (byte) i += 2;
  }
  return decoded;
}

}  // namespace ferry

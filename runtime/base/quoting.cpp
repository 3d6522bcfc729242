#include "runtime/base/quoting.h"

namespace ferry {

std::string whole_characters(std::string_view text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return std::string(text);
  std::size_t end = max_bytes;
  while (end > 0 && max_bytes - end < 3 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return std::string(text.substr(0, end));
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kBytesMax = 120;
  std::string result = "'";
  for (const char c : whole_characters(text, kBytesMax)) result += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  return result + (text.size() > kBytesMax ? "…'" : "'");
}

}  // namespace ferry

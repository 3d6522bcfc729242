#include "runtime/base/quoting.h"

#include <cstdio>

namespace ferry {
namespace {

/// Of UTF-8: line and paragraph separators, and what turns the direction of the text behind it (U+2028 to U+202E, U+2066 to
/// U+2069), so that it reads as something else than it is.
bool turns_text(std::string_view text) {
  if (!text.starts_with("\xE2\x80") && !text.starts_with("\xE2\x81")) return false;
  const auto last = static_cast<unsigned char>(text.size() > 2 ? text[2] : 0);
  return text[1] == '\x80' ? last >= 0xA8 && last <= 0xAE : last >= 0xA6 && last <= 0xA9;
}

std::string escaped(std::string_view text, std::string_view kept) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    if (turns_text(text.substr(i))) {
      char code[16];
      std::snprintf(code, sizeof code, "\\u%04x",
                    0x2000U + ((next & 0x3FU) << 6) + (static_cast<unsigned char>(text[i + 2]) & 0x3FU));
      result += code;
      i += 2;
      continue;
    }
    const bool is_second_set = byte == 0xC2 && next >= 0x80 && next < 0xA0;  // U+0080 to U+009F: one of them is as ESC [
    if (!is_second_set && (kept.find(text[i]) != std::string_view::npos || (byte >= 0x20 && byte != 0x7F))) {
      result += text[i];
      continue;
    }
    char code[8];
    std::snprintf(code, sizeof code, "\\x%02x", is_second_set ? next : byte);
    result += code;
    if (is_second_set) ++i;
  }
  return result;
}

}  // namespace

std::string printable(std::string_view text) { return escaped(text, ""); }
std::string printable_lines(std::string_view text) { return escaped(text, "\n"); }

std::string whole_characters(std::string_view text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return std::string(text);
  std::size_t end = max_bytes;
  while (end > 0 && max_bytes - end < 3 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return std::string(text.substr(0, end));
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kBytesMax = 120;
  std::string result = "'";
  for (const char c : whole_characters(text, kBytesMax)) result += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '?' : c;
  return result + (text.size() > kBytesMax ? "…'" : "'");
}

}  // namespace ferry

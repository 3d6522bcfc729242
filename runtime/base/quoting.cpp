#include "runtime/base/quoting.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace ferry {
namespace {

/// A character of UTF-8 and its bytes; a byte that begins none stands for itself.
struct Character {
  char32_t code;
  std::size_t num_bytes;
};

Character first_character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  const std::size_t num_bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC2 ? 2 : 1;
  if (num_bytes == 1 || text.size() < num_bytes) return {lead, 1};
  char32_t code = lead & (0x7FU >> num_bytes);
  for (const char c : text.substr(1, num_bytes - 1)) {
    if ((static_cast<unsigned char>(c) & 0xC0U) != 0x80U) return {lead, 1};
    code = code << 6 | (static_cast<unsigned char>(c) & 0x3FU);
  }
  return {code, num_bytes};
}

/// What is not seen, breaks lines, or turns the direction of the text behind it, so that it reads as something else than it
/// is: Unicode's format characters (Cf) that stand between letters of any script, and its line and paragraph separators.
bool is_unseen(char32_t code) {
  constexpr std::pair<char32_t, char32_t> kUnseen[] = {{0xAD, 0xAD},     {0x61C, 0x61C},   {0x180E, 0x180E},
                                                       {0x200B, 0x200F}, {0x2028, 0x202E}, {0x2060, 0x206F},
                                                       {0xFEFF, 0xFEFF}, {0xFFF9, 0xFFFB}, {0xE0000, 0xE007F}};
  return std::ranges::any_of(kUnseen, [code](const auto& range) { return code >= range.first && code <= range.second; });
}

std::string escaped(std::string_view text, std::string_view kept) {
  std::string result;
  while (!text.empty()) {
    const auto [code, num_bytes] = first_character(text);
    const bool is_control =  // from U+0080 on there is one that is as ESC [
        code < 0x20 || code == 0x7F || (num_bytes == 2 && code < 0xA0);
    const bool is_kept = num_bytes == 1 && kept.find(text.front()) != std::string_view::npos;
    if (!is_kept && (is_control || (num_bytes > 1 && is_unseen(code)))) {
      char shown[16];
      std::snprintf(shown, sizeof shown, is_control ? "\\x%02x" : "\\u%04x", static_cast<unsigned>(code));
      result += shown;
    } else {
      result += text.substr(0, num_bytes);
    }
    text.remove_prefix(num_bytes);
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
  return "'" + printable(whole_characters(text, kBytesMax)) + (text.size() > kBytesMax ? "…'" : "'");
}

}  // namespace ferry

#include "runtime/text/jinja/text_parts.h"

#include <algorithm>

namespace ferry::jinja {

int64_t num_code_points(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

int64_t num_code_points(const Text& text) {
  if (text.num_code_points < 0) text.num_code_points = num_code_points(std::string_view(text.bytes));
  return text.num_code_points;
}

std::size_t last_character_bytes(std::string_view text) {
  std::size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0U) == 0x80U) --begin;
  return text.size() - begin;
}

std::size_t byte_offset(std::string_view text, int64_t index) {
  std::size_t offset = 0;
  for (; index > 0 && offset < text.size(); --index) offset += character_bytes(text.substr(offset));
  return offset;
}

std::string_view characters_between(const Text& text, int64_t begin, int64_t end) {
  const std::string_view bytes = text.bytes;
  if (begin >= end) return {};
  if (num_code_points(text) == std::ssize(bytes))
    return bytes.substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
  const std::string_view rest = bytes.substr(byte_offset(bytes, begin));
  return rest.substr(0, byte_offset(rest, end - begin));
}

std::string take_characters(const Text& text, int64_t start, int64_t count, int64_t step) {
  if (step == 1) return std::string(characters_between(text, start, start + std::max<int64_t>(count, 0)));
  const std::string_view bytes = text.bytes;
  const bool is_ascii = num_code_points(text) == std::ssize(bytes);
  std::string out;
  std::size_t at = count <= 0 ? 0 : is_ascii ? static_cast<std::size_t>(start) : byte_offset(bytes, start);
  for (int64_t i = 0; i < count; ++i) {
    out += bytes.substr(at, is_ascii ? 1 : character_bytes(bytes.substr(at)));
    if (i + 1 == count) break;
    if (is_ascii) {
      at = static_cast<std::size_t>(static_cast<int64_t>(at) + step);
    } else if (step > 0) {
      at += byte_offset(bytes.substr(at), step);
    } else {
      for (int64_t back = step; back < 0; ++back) at -= last_character_bytes(bytes.substr(0, at));
    }
  }
  return out;
}

}  // namespace ferry::jinja

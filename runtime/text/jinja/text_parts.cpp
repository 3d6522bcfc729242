#include "runtime/text/jinja/text_parts.h"

#include <algorithm>
#include <vector>

namespace ferry::jinja {

int64_t num_code_points(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

int64_t num_code_points(const Text& text) {
  if (text.num_code_points < 0) text.num_code_points = num_code_points(std::string_view(text.bytes));
  return text.num_code_points;
}

std::size_t byte_offset(std::string_view text, int64_t index) {
  std::size_t offset = 0;
  for (; index > 0 && offset < text.size(); --index) offset += character_bytes(text.substr(offset));
  return offset;
}

std::string take_characters(const Text& text, int64_t start, int64_t count, int64_t step) {
  const std::string_view bytes = text.bytes;
  const bool is_ascii = num_code_points(text) == std::ssize(bytes);
  if (count <= 0) return "";
  if (step == 1) {
    const std::size_t begin = is_ascii ? static_cast<std::size_t>(start) : byte_offset(bytes, start);
    const std::string_view rest = bytes.substr(begin);
    return std::string(rest.substr(0, is_ascii ? static_cast<std::size_t>(count) : byte_offset(rest, count)));
  }
  std::vector<std::size_t> offsets;  // of the characters
  if (!is_ascii) {
    offsets.reserve(static_cast<std::size_t>(num_code_points(text)));
    for (std::size_t at = 0; at < bytes.size(); at += character_bytes(bytes.substr(at))) offsets.push_back(at);
  }
  std::string out;
  for (int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<std::size_t>(start + i * step);
    const std::size_t at = is_ascii ? index : offsets[index];
    out += bytes.substr(at, is_ascii ? 1 : character_bytes(bytes.substr(at)));
  }
  return out;
}

}  // namespace ferry::jinja

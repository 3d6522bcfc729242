#include "runtime/text/jinja/text_search.h"

#include <algorithm>

#include "runtime/text/jinja/text_parts.h"
#include "runtime/text/unicode_case.h"
#include "runtime/text/unicode_text.h"

namespace ferry::jinja {
namespace {

/// Of the last character.
std::size_t last_character_bytes(std::string_view text) {
  std::size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0U) == 0x80U) --begin;
  return text.size() - begin;
}

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

/// Where the white space at the end of `text` begins, or where the word before that does.
std::size_t word_begin(std::string_view text) {
  std::size_t begin = text.size();
  while (begin > 0) {
    const std::size_t num_bytes = last_character_bytes(text.substr(0, begin));
    std::string_view last = text.substr(begin - num_bytes, num_bytes);
    if (is_python_space(take_character(last))) break;
    begin -= num_bytes;
  }
  return begin;
}

std::size_t word_end(std::string_view text) {
  std::string_view rest = text;
  while (!rest.empty()) {
    std::string_view tail = rest;
    if (is_python_space(take_character(tail))) break;
    rest = tail;
  }
  return text.size() - rest.size();
}

}  // namespace

std::string_view strip_characters(std::string_view text, std::string_view characters, Ends ends) {
  const auto is_one = [&](std::string_view character) {
    for (std::string_view rest = characters; !rest.empty(); rest.remove_prefix(character_bytes(rest)))
      if (rest.substr(0, character_bytes(rest)) == character) return true;
    return false;
  };
  while (ends != Ends::kRight && !text.empty() && is_one(text.substr(0, character_bytes(text))))
    text.remove_prefix(character_bytes(text));
  while (ends != Ends::kLeft && !text.empty() && is_one(text.substr(text.size() - last_character_bytes(text))))
    text.remove_suffix(last_character_bytes(text));
  return text;
}

std::string replaced(std::string_view text, std::string_view before, std::string_view after, int64_t count, Heap& heap) {
  const std::size_t most = count < 0 ? SIZE_MAX : static_cast<std::size_t>(count);
  heap.read(text.size());
  std::size_t num_found = 0;
  if (before.empty()) {
    num_found = std::min(most, static_cast<std::size_t>(num_code_points(text)) + 1);
  } else {
    for (std::size_t at = text.find(before); at != std::string_view::npos && num_found < most;
         at = text.find(before, at + before.size()))
      ++num_found;
  }
  if (after.size() > 0 && num_found > static_cast<std::size_t>(heap.limits().held_bytes) / after.size())
    heap.require(static_cast<std::size_t>(heap.limits().held_bytes) + 1);
  heap.require(text.size() + num_found * after.size());
  std::string out;
  std::size_t at = 0;
  for (std::size_t i = 0; i < num_found; ++i) {
    const std::size_t found = before.empty() ? at : text.find(before, at);
    out.append(text.substr(at, found - at)).append(after);
    at = found + before.size();
    if (!before.empty() || at >= text.size()) continue;
    const std::size_t num_bytes = character_bytes(text.substr(at));
    out.append(text.substr(at, num_bytes));
    at += num_bytes;
  }
  return out.append(text.substr(std::min(at, text.size())));
}

std::vector<std::string_view> lines_of(std::string_view text, bool keeps_ends) {
  std::vector<std::string_view> lines;
  std::size_t line_begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    std::string_view rest = text.substr(at);
    const char32_t c = take_character(rest);
    const std::size_t end = at;
    at = text.size() - rest.size();
    if (!is_line_end(c)) continue;
    if (c == '\r' && rest.starts_with('\n')) ++at;
    lines.push_back(text.substr(line_begin, (keeps_ends ? at : end) - line_begin));
    line_begin = at;
  }
  if (line_begin < text.size()) lines.push_back(text.substr(line_begin));
  return lines;
}

std::vector<std::string_view> split_at_space(std::string_view text, int64_t most, Ends from) {
  std::vector<std::string_view> parts;
  if (from == Ends::kRight) {
    for (text = strip_white_space_right(text); !text.empty(); text = strip_white_space_right(text)) {
      const std::size_t begin = std::ssize(parts) == most ? 0 : word_begin(text);
      parts.push_back(text.substr(begin));
      text = text.substr(0, begin);
    }
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  for (text = strip_white_space_left(text); !text.empty(); text = strip_white_space_left(text)) {
    const std::size_t end = std::ssize(parts) == most ? text.size() : word_end(text);
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return parts;
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator, int64_t most, Ends from) {
  std::vector<std::string_view> parts;
  if (from == Ends::kRight) {
    for (std::size_t at = text.rfind(separator); at != std::string_view::npos && std::ssize(parts) < most;
         at = text.rfind(separator)) {
      parts.push_back(text.substr(at + separator.size()));
      text = text.substr(0, at);
    }
    parts.push_back(text);
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  for (std::size_t at = text.find(separator); at != std::string_view::npos && std::ssize(parts) < most;
       at = text.find(separator)) {
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + separator.size());
  }
  parts.push_back(text);
  return parts;
}

std::string filling(const std::string& text, int64_t width, const std::string& fill, Heap& heap) {
  const int64_t missing = width - num_code_points(text);
  if (missing <= 0) return "";
  heap.require(static_cast<std::size_t>(std::min(missing, heap.limits().held_bytes + 1)) * fill.size());
  heap.work(missing);
  std::string out;
  for (int64_t i = 0; i < missing; ++i) out += fill;
  return out;
}

/// Where the blanks are odd in number Python puts one more to the left if the width is odd, too.
std::string centered(const std::string& text, int64_t width, const std::string& fill, Heap& heap) {
  const int64_t missing = width - num_code_points(text);
  if (missing <= 0) return text;
  const std::string all = filling(text, width, fill, heap);
  const auto left = static_cast<std::size_t>(missing / 2 + (missing & width & 1)) * fill.size();
  return all.substr(0, left) + text + all.substr(left);
}

}  // namespace ferry::jinja

#include "runtime/text/jinja/text_search.h"

#include <algorithm>
#include <unordered_set>

#include "runtime/text/jinja/text_parts.h"
#include "runtime/text/text_find.h"
#include "runtime/text/unicode_case.h"
#include "runtime/text/unicode_text.h"

namespace ferry::jinja {
namespace {

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

/// Takes one more part in, and sees now and then whether all of them may be held as values.
void add_part(std::string_view part, std::vector<std::string_view>& parts, Heap& heap) {
  constexpr std::size_t kPartsPerLook = 4096;
  parts.push_back(part);
  if (parts.size() % kPartsPerLook == 0) heap.require(parts.size() * (sizeof(Value) + sizeof(Text)));
}

}  // namespace

std::string_view strip_characters(std::string_view text, std::string_view characters, Ends ends) {
  std::unordered_set<char32_t> members;
  while (!characters.empty()) members.insert(take_character(characters));
  const auto is_one = [&](std::string_view character) { return members.contains(take_character(character)); };
  while (ends != Ends::kRight && !text.empty() && is_one(text.substr(0, character_bytes(text))))
    text.remove_prefix(character_bytes(text));
  while (ends != Ends::kLeft && !text.empty() && is_one(text.substr(text.size() - last_character_bytes(text))))
    text.remove_suffix(last_character_bytes(text));
  return text;
}

std::string replaced(std::string_view text, std::string_view before, std::string_view after, int64_t count, Heap& heap) {
  const std::size_t most = count < 0 ? SIZE_MAX : static_cast<std::size_t>(count);
  std::size_t num_found = 0;
  if (before.empty()) {
    num_found = std::min(most, static_cast<std::size_t>(num_code_points(text)) + 1);
  } else {
    for (std::size_t at = find_text(text, before); at != std::string_view::npos && num_found < most;
         at = find_text(text, before, at + before.size()))
      ++num_found;
  }
  if (after.size() > 0 && num_found > static_cast<std::size_t>(heap.limits().held_bytes) / after.size())
    heap.require(static_cast<std::size_t>(heap.limits().held_bytes) + 1);
  heap.require(text.size() + num_found * after.size());
  std::string out;
  std::size_t at = 0;
  for (std::size_t i = 0; i < num_found; ++i) {
    const std::size_t found = before.empty() ? at : find_text(text, before, at);
    out.append(text.substr(at, found - at)).append(after);
    at = found + before.size();
    if (!before.empty() || at >= text.size()) continue;
    const std::size_t num_bytes = character_bytes(text.substr(at));
    out.append(text.substr(at, num_bytes));
    at += num_bytes;
  }
  return out.append(text.substr(std::min(at, text.size())));
}

std::vector<std::string_view> lines_of(std::string_view text, bool keeps_ends, Heap& heap) {
  std::vector<std::string_view> lines;
  std::size_t line_begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    std::string_view rest = text.substr(at);
    const char32_t c = take_character(rest);
    const std::size_t end = at;
    at = text.size() - rest.size();
    if (!is_line_end(c)) continue;
    if (c == '\r' && rest.starts_with('\n')) ++at;
    add_part(text.substr(line_begin, (keeps_ends ? at : end) - line_begin), lines, heap);
    line_begin = at;
  }
  if (line_begin < text.size()) lines.push_back(text.substr(line_begin));
  return lines;
}

std::vector<std::string_view> split_at_space(std::string_view text, int64_t most, Ends from, Heap& heap) {
  std::vector<std::string_view> parts;
  if (from == Ends::kRight) {
    for (text = strip_white_space_right(text); !text.empty(); text = strip_white_space_right(text)) {
      const std::size_t begin = std::ssize(parts) == most ? 0 : word_begin(text);
      add_part(text.substr(begin), parts, heap);
      text = text.substr(0, begin);
    }
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  for (text = strip_white_space_left(text); !text.empty(); text = strip_white_space_left(text)) {
    const std::size_t end = std::ssize(parts) == most ? text.size() : word_end(text);
    add_part(text.substr(0, end), parts, heap);
    text.remove_prefix(end);
  }
  return parts;
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator, int64_t most, Ends from, Heap& heap) {
  std::vector<std::string_view> parts;
  if (from == Ends::kRight) {
    heap.require(text.size() + separator.size());
    const LastFinder finder(text, separator);
    std::size_t end = text.size();
    for (std::size_t at = finder.find(end); at != std::string_view::npos && std::ssize(parts) < most; at = finder.find(end)) {
      add_part(text.substr(at + separator.size(), end - at - separator.size()), parts, heap);
      end = at;
    }
    parts.push_back(text.substr(0, end));
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  for (std::size_t at = find_text(text, separator); at != std::string_view::npos && std::ssize(parts) < most;
       at = find_text(text, separator)) {
    add_part(text.substr(0, at), parts, heap);
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

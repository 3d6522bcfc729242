#include "runtime/grammar/pattern_check.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/quoting.h"

namespace ferry {
namespace {

constexpr std::string_view kUnwritten = R"("\\\x00-\x1f)";  // inside a class: what a JSON string has only as an escape
constexpr int64_t kTooMany = int64_t{1} << 40;

bool needs_escape(int character) { return character < 0x20 || character == '"' || character == '\\'; }

/// The largest count of "{2}", "{2,}" or "{2,5}" at `at`, and where it ends.
std::pair<int64_t, std::size_t> read_count(std::string_view pattern, std::size_t at) {
  int64_t largest = 1;
  int64_t number = 0;
  std::size_t end = at + 1;
  for (; end < pattern.size() && pattern[end] != '}'; ++end) {
    const bool is_digit = std::isdigit(static_cast<unsigned char>(pattern[end])) != 0;
    number = is_digit ? std::min(number * 10 + (pattern[end] - '0'), kTooMany) : 0;
    largest = std::max(largest, number);
  }
  return {largest, end};
}

/// Behind the class that begins at `begin`.
std::size_t end_of_class(std::string_view pattern, std::size_t begin) {
  for (std::size_t i = begin + 1; i < pattern.size(); ++i) {
    if (pattern[i] == '\\') {
      ++i;
    } else if (pattern[i] == ']') {
      return i + 1;
    }
  }
  return pattern.size();
}

/// Characters, classes and escapes of a pattern, each as often as the counts around it say.
int64_t num_parts(std::string_view pattern) {
  std::vector<int64_t> open = {0};  // parts of the groups that are open
  int64_t last = 0;                 // of the part that a count would be about
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '(') {
      open.push_back(0);
      continue;
    }
    if (c == '{') {
      const auto [count, end] = read_count(pattern, i);
      open.back() = std::min(open.back() + last * (count - 1), kTooMany);
      last = 0;
      i = end;
      continue;
    }
    last = 1;
    if (c == ')' && open.size() > 1) {
      last = open.back();
      open.pop_back();
    } else if (c == '[') {
      i = end_of_class(pattern, i) - 1;
    } else if (c == '\\') {
      ++i;
    }
    open.back() = std::min(open.back() + last, kTooMany);
  }
  int64_t sum = 0;
  for (const int64_t parts : open) sum += parts;
  return sum;
}

class JsonPattern {
 public:
  JsonPattern(const std::string& pattern, const std::string& path) : pattern_(pattern), path_(path) {}

  std::string write() {
    std::size_t end = pattern_.size();
    std::size_t at = pattern_.starts_with('^') ? 1 : 0;
    const bool is_escaped = end >= 2 && pattern_[end - 2] == '\\';
    if (end > at && pattern_.back() == '$' && !is_escaped) --end;
    while (at < end) at = write_part(at, end);
    return "(" + out_ + ")\u00e9{0}";  // beyond ASCII, so that no automaton is made; none of it
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw_invalid(path_ + ": " + what + " is not supported in " + in_quotes(pattern_));
  }

  std::size_t write_part(std::size_t at, std::size_t end) {
    const char c = pattern_[at];
    if (c == '[') return write_class(at, end);
    if (c == '\\') return write_escape(at, end);
    if (c == '^' || c == '$') refuse("an anchor inside");
    if (c == '"' || static_cast<unsigned char>(c) < 0x20) refuse("a quote or control character");
    if (c == '.') {
      out_ += "[^" + std::string(kUnwritten) + "]";
      return at + 1;
    }
    const bool is_special_group = c == '(' && at + 1 < end && pattern_[at + 1] == '?';
    if (is_special_group && (at + 2 >= end || pattern_[at + 2] != ':')) refuse("a group that is more than (?:…)");
    if (is_special_group) {
      out_ += "(";
      return at + 3;
    }
    out_ += c;
    return at + 1;
  }

  std::size_t write_escape(std::size_t at, std::size_t end) {
    if (at + 1 >= end) refuse("a backslash at the end");
    const char c = pattern_[at + 1];
    switch (c) {
      case 's': out_ += "[ ]"; break;
      case 'S': out_ += R"([^"\\\x00-\x20])"; break;
      case 'D': out_ += R"([^"\\\x00-\x1f0-9])"; break;
      case 'W': out_ += R"([^"\\\x00-\x1fa-zA-Z0-9_])"; break;
      case 'd': out_ += "[0-9]"; break;
      case 'w': out_ += "[a-zA-Z0-9_]"; break;
      default:
        if (c == '"' || c == '\\' || std::isalnum(static_cast<unsigned char>(c)) != 0) refuse(std::string("\\") + c);
        out_ += pattern_.substr(at, 2);
    }
    return at + 2;
  }

  /// Copies a class; one that names characters must name none that needs an escape.
  std::size_t write_class(std::size_t begin, std::size_t end) {
    const std::size_t behind = end_of_class(pattern_, begin);
    if (behind > end || pattern_[behind - 1] != ']') refuse("a class without an end");
    const bool is_negated = pattern_[begin + 1] == '^';
    const std::size_t first = begin + (is_negated ? 2 : 1);
    if (first + 1 >= behind) refuse("an empty class");
    out_ += is_negated ? "[^" + std::string(kUnwritten) : "[";
    constexpr int kNone = -1;
    int range_begin = kNone;
    for (std::size_t i = first; i + 1 < behind;) {
      const std::size_t item = i;
      const std::optional<int> read = read_character(i, is_negated);
      const int character = read.value_or(kNone);
      const bool ends_range = range_begin != kNone;
      const bool begins_range = read && !ends_range && i + 2 < behind && pattern_[i] == '-';
      if (read && !is_negated && !ends_range && !begins_range && needs_escape(character))
        refuse("a class with a quote, backslash or control character");
      if (ends_range && read && !is_negated) check_range(range_begin, character);
      range_begin = begins_range ? character : kNone;
      if (begins_range) ++i;
      const bool is_plain_hyphen = i == item + 1 && pattern_[item] == '-';  // behind a range, say
      out_ += is_plain_hyphen ? "\\-" : pattern_.substr(item, i - item);
    }
    out_ += ']';
    return behind;
  }

  void check_range(int first, int last) const {
    for (int c = first; c <= std::min(last, 0x7F); ++c) {
      if (needs_escape(c)) refuse("a class with a quote, backslash or control character");
    }
  }

  /// A character of a class (a byte of one beyond ASCII), or nothing for \d and \w; moves `i` behind it.
  std::optional<int> read_character(std::size_t& i, bool is_negated) const {
    const char c = pattern_[i++];
    if (c != '\\') return static_cast<unsigned char>(c);
    const char escaped = pattern_[i++];
    if (escaped == 'd' || escaped == 'w') return std::nullopt;
    const bool is_control = escaped == 'n' || escaped == 't' || escaped == 'r';
    if (is_control && is_negated) return ' ' - 1;
    if (std::isalnum(static_cast<unsigned char>(escaped)) != 0) refuse(std::string("\\") + escaped + " in a class");
    return static_cast<unsigned char>(escaped);
  }

  const std::string& pattern_;
  const std::string& path_;
  std::string out_;
};

}  // namespace

void check_pattern(const std::string& pattern, const std::string& path, int64_t max_bytes, int64_t max_parts) {
  if (static_cast<int64_t>(pattern.size()) > max_bytes) {
    throw_invalid(path + ": has " + std::to_string(pattern.size()) + " bytes; allowed: at most " + std::to_string(max_bytes));
  }
  if (num_parts(pattern) > max_parts) {
    throw_invalid(path + ": its counts make more than " + std::to_string(max_parts) + " parts of it");
  }
}

std::string pattern_in_json(const std::string& pattern, const std::string& path) { return JsonPattern(pattern, path).write(); }

}  // namespace ferry

#include <algorithm>
#include <array>

#include "runtime/text/jinja/interpreter.h"
#include "runtime/text/jinja/natives.h"
#include "runtime/text/jinja/numbers.h"
#include "runtime/text/jinja/operators.h"
#include "runtime/text/jinja/printing.h"
#include "runtime/text/jinja/text_parts.h"
#include "runtime/text/jinja/text_search.h"
#include "runtime/text/text_find.h"
#include "runtime/text/unicode_case.h"
#include "runtime/text/unicode_text.h"

// Methods of Python's str.

namespace ferry::jinja {
namespace {

bool is_safe_text(const Value& self) { return self.get<TextPtr>()->is_safe; }

/// Returns the first or the last place of `wanted` in `text`; npos if it is not there.
std::size_t place_in(std::string_view text, std::string_view wanted, bool is_last, Heap& heap) {
  if (!is_last) return find_text(text, wanted);
  heap.require(text.size() + wanted.size());
  return LastFinder(text, wanted).find(text.size());
}

/// A text made of `self`; safe if that is.
Value made(Interpreter& interpreter, const Value& self, std::string text) {
  return interpreter.heap().text(std::move(text), is_safe_text(self));
}

template <std::string (*fn)(std::string_view)>
Value cased(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("str method", arguments, {});
  interpreter.heap().require(kCasedBytes * self.text().size());
  return made(interpreter, self, fn(self.text()));
}

template <Ends ends>
Value strip(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("strip", arguments, {"chars"});
  const std::string& text = self.text();
  if (bound.has_value(0)) return made(interpreter, self, std::string(strip_characters(text, bound.text(0, ""), ends)));
  const std::string_view stripped = ends == Ends::kLeft    ? strip_white_space_left(text)
                                    : ends == Ends::kRight ? strip_white_space_right(text)
                                                           : strip_white_space(text);
  return made(interpreter, self, std::string(stripped));
}

Value list_of(Interpreter& interpreter, const Value& self, const std::vector<std::string_view>& parts) {
  Heap& heap = interpreter.heap();
  heap.require(parts.size() * (sizeof(Value) + sizeof(Text)));
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) items.push_back(made(interpreter, self, std::string(part)));
  return heap.list(std::move(items));
}

template <Ends from>
Value split(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("split", arguments, {"sep", "maxsplit"});
  Heap& heap = interpreter.heap();
  int64_t most = bound.integer(1, -1);
  if (most < 0) most = INT64_MAX;
  if (!bound.has_value(0)) return list_of(interpreter, self, split_at_space(self.text(), most, from, heap));
  const std::string_view separator = bound.text(0, "");
  if (separator.empty()) fail("empty separator");
  return list_of(interpreter, self, split_at(self.text(), separator, most, from, heap));
}

Value split_lines(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("splitlines", arguments, {"keepends"});
  return list_of(interpreter, self, lines_of(self.text(), bound.flag(0, false), interpreter.heap()));
}

Value partition(Interpreter& interpreter, const Value& self, Arguments& arguments, bool is_last) {
  const Bound bound("partition", arguments, {"sep"}, 1);
  const std::string_view separator = bound.text(0, "");
  if (separator.empty()) fail("empty separator");
  const std::string_view text = self.text();
  const std::size_t at = place_in(text, separator, is_last, interpreter.heap());
  std::array<std::string_view, 3> parts = {text, "", ""};
  if (at != std::string_view::npos) {
    parts = {text.substr(0, at), separator, text.substr(at + separator.size())};
  } else if (is_last) {
    parts = {"", "", text};
  }
  std::vector<Value> items;
  for (const std::string_view part : parts) items.push_back(made(interpreter, self, std::string(part)));
  return interpreter.heap().tuple(std::move(items));
}
Value left_partition(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  return partition(interpreter, self, arguments, false);
}
Value right_partition(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  return partition(interpreter, self, arguments, true);
}

/// The part of a text between the positions that find() and others take, which count from the end where they are negative; none
/// where they are outside.
struct Range {
  std::string_view text;
  int64_t begin = 0;  // characters
  bool is_valid = true;
};

Range range_of(const Value& self, const Bound& bound, Heap& heap) {
  const int64_t length = length_of(self, heap);
  const auto place = [&](std::size_t parameter, int64_t otherwise) {
    const int64_t given = bound.has_value(parameter) ? bound.integer(parameter, otherwise) : otherwise;
    return given < 0 ? std::max<int64_t>(given < -length ? 0 : given + length, 0) : given;
  };
  const int64_t begin = place(1, 0), end = std::min(place(2, length), length);
  if (begin > end) return {.text = "", .begin = begin, .is_valid = false};
  return {.text = characters_between(*self.get<TextPtr>(), begin, end), .begin = begin};
}

/// Returns whether `text` begins or ends with `affix`, or with one of them if it is a tuple.
template <bool at_end>
bool has_one_of(std::string_view text, const Value& affix, Heap& heap) {
  const bool is_tuple = affix.is<SequencePtr>() && affix.sequence().form == Sequence::Form::kTuple;
  const std::vector<Value> affixes = is_tuple ? items_of(affix, heap) : std::vector<Value>{affix};
  for (const Value& each : affixes) {
    if (each.is_undefined()) fail_undefined(each);
    if (!each.is_text()) fail(std::string("startswith and endswith need str or a tuple of str, not ") + type_name(each));
  }
  return std::any_of(affixes.begin(), affixes.end(), [&](const Value& each) {
    heap.read(std::min(text.size(), each.text().size()));
    return at_end ? text.ends_with(each.text()) : text.starts_with(each.text());
  });
}

template <bool at_end>
Value has_affix(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound(at_end ? "endswith" : "startswith", arguments, {"affix", "start", "end"}, 1);
  if (!bound.has(1)) return has_one_of<at_end>(self.text(), bound[0], interpreter.heap());
  const Range range = range_of(self, bound, interpreter.heap());
  return has_one_of<at_end>(range.text, bound[0], interpreter.heap()) && range.is_valid;
}

/// -1 where it is not found.
template <bool is_last>
int64_t found_at(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("find", arguments, {"sub", "start", "end"}, 1);
  const std::string_view wanted = bound.text(0, "");
  const Range range = range_of(self, bound, interpreter.heap());
  if (!range.is_valid) return -1;
  const std::size_t at = place_in(range.text, wanted, is_last, interpreter.heap());
  return at == std::string_view::npos ? -1 : range.begin + num_code_points(range.text.substr(0, at));
}

template <bool is_last>
Value find(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  return Value::integer(found_at<is_last>(interpreter, self, arguments));
}

template <bool is_last>
Value index(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const int64_t at = found_at<is_last>(interpreter, self, arguments);
  if (at < 0) fail("substring not found");
  return Value::integer(at);
}

Value count(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("count", arguments, {"sub", "start", "end"}, 1);
  const std::string_view wanted = bound.text(0, "");
  const Range range = range_of(self, bound, interpreter.heap());
  if (!range.is_valid) return Value::integer(0);
  if (wanted.empty()) return Value::integer(num_code_points(range.text) + 1);
  Int num_found = 0;
  for (std::size_t at = find_text(range.text, wanted); at != std::string_view::npos;
       at = find_text(range.text, wanted, at + wanted.size()))
    ++num_found;
  return Value::integer(num_found);
}

Value replace(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  const auto part = [&](std::size_t parameter) {
    std::string text(bound.text(parameter, ""));
    const bool escapes = is_safe_text(self) && !bound[parameter].get<TextPtr>()->is_safe && parameter == 1;
    return escapes ? escape_html(text) : text;
  };
  return made(interpreter, self, replaced(self.text(), part(0), part(1), bound.integer(2, -1), interpreter.heap()));
}

Value join(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("join", arguments, {"iterable"}, 1);
  Heap& heap = interpreter.heap();
  std::string out;
  std::size_t num_items = 0;
  for (const Value& item : items_of(bound[0], heap)) {
    if (!item.is_text()) {
      fail("sequence item " + std::to_string(num_items) + ": expected str instance, " + type_name(item) + " found");
    }
    if (num_items++ > 0) out += self.text();
    heap.read(self.text().size());
    const bool escapes = is_safe_text(self) && !item.get<TextPtr>()->is_safe;
    escapes ? append_text(heap.text(escape_html(item.text())), out, heap) : append_text(item, out, heap);
  }
  return made(interpreter, self, std::move(out));
}

Value format(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  return made(interpreter, self, format_braces(self.text(), arguments, interpreter));
}

template <bool is_suffix>
Value without_affix(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("removeprefix", arguments, {"affix"}, 1);
  const std::string_view affix = bound.text(0, "");
  const std::string& text = self.text();
  if (is_suffix) return made(interpreter, self, text.ends_with(affix) ? text.substr(0, text.size() - affix.size()) : text);
  return made(interpreter, self, text.starts_with(affix) ? text.substr(affix.size()) : text);
}

enum class Side { kLeft, kRight, kCenter };

template <Side side>
Value justified(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("ljust", arguments, {"width", "fillchar"}, 1);
  const std::string fill(bound.text(1, " "));
  if (num_code_points(std::string_view(fill)) != 1) fail("The fill character must be exactly one character long");
  Heap& heap = interpreter.heap();
  const int64_t width = bound.integer(0, 0);
  if (side == Side::kCenter) return made(interpreter, self, centered(self.text(), width, fill, heap));
  const std::string blanks = filling(self.text(), width, fill, heap);
  return made(interpreter, self, side == Side::kLeft ? self.text() + blanks : blanks + self.text());
}

Value zero_filled(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("zfill", arguments, {"width"}, 1);
  const std::string zeros = filling(self.text(), bound.integer(0, 0), "0", interpreter.heap());
  const std::size_t sign_bytes = self.text().starts_with('-') || self.text().starts_with('+') ? 1 : 0;
  return made(interpreter, self, self.text().substr(0, sign_bytes) + zeros + self.text().substr(sign_bytes));
}

/// All characters are of a kind, and there is one.
template <bool (*fn)(char32_t)>
Value all_are(Interpreter& /*interpreter*/, const Value& self, Arguments& arguments) {
  const Bound bound("str method", arguments, {});
  std::string_view rest = self.text();
  if (rest.empty()) return false;
  while (!rest.empty())
    if (!fn(take_character(rest))) return false;
  return true;
}

bool is_alphanumeric(char32_t c) { return is_letter(c) || is_numeric(c); }
/// Decimal digits, and raised and lowered ones.
bool is_digit(char32_t c) {
  return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) ||
         (c >= 0x2080 && c <= 0x2089);
}

template <const char* test>
Value tested(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  return interpreter.test(test, self, arguments);
}
constexpr char kLower[] = "lower";
constexpr char kUpper[] = "upper";

constexpr std::array<Native, 37> kMethods = {{
    {"capitalize", cased<to_capitalized>},
    {"casefold", cased<to_lower>},
    {"center", justified<Side::kCenter>},
    {"count", count},
    {"endswith", has_affix<true>},
    {"find", find<false>},
    {"format", format},
    {"index", index<false>},
    {"isalnum", all_are<is_alphanumeric>},
    {"isalpha", all_are<is_letter>},
    {"isdecimal", all_are<is_decimal>},
    {"isdigit", all_are<is_digit>},
    {"islower", tested<kLower>},
    {"isnumeric", all_are<is_numeric>},
    {"isspace", all_are<is_python_space>},
    {"isupper", tested<kUpper>},
    {"join", join},
    {"ljust", justified<Side::kLeft>},
    {"lower", cased<to_lower>},
    {"lstrip", strip<Ends::kLeft>},
    {"partition", left_partition},
    {"removeprefix", without_affix<false>},
    {"removesuffix", without_affix<true>},
    {"replace", replace},
    {"rfind", find<true>},
    {"rindex", index<true>},
    {"rjust", justified<Side::kRight>},
    {"rpartition", right_partition},
    {"rsplit", split<Ends::kRight>},
    {"rstrip", strip<Ends::kRight>},
    {"split", split<Ends::kLeft>},
    {"splitlines", split_lines},
    {"startswith", has_affix<false>},
    {"strip", strip<Ends::kBoth>},
    {"title", cased<to_title>},
    {"upper", cased<to_upper>},
    {"zfill", zero_filled},
}};

}  // namespace

std::span<const Native> text_methods() { return kMethods; }

}  // namespace ferry::jinja

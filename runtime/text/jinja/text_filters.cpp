#include <algorithm>
#include <array>

#include "runtime/text/jinja/interpreter.h"
#include "runtime/text/jinja/natives.h"
#include "runtime/text/jinja/numbers.h"
#include "runtime/text/jinja/operators.h"
#include "runtime/text/jinja/printing.h"
#include "runtime/text/jinja/text_parts.h"
#include "runtime/text/jinja/text_search.h"
#include "runtime/text/unicode_case.h"
#include "runtime/text/unicode_text.h"

// Filters that make text (jinja2/filters.py of 3.1).

namespace ferry::jinja {
namespace {

bool is_safe(const Value& value) { return value.is_text() && value.get<TextPtr>()->is_safe; }

/// str(value), which keeps whether it is safe HTML.
template <class Fn>
Value changed(Interpreter& interpreter, const Value& self, Fn fn) {
  Heap& heap = interpreter.heap();
  const std::string text = text_of(self, heap);
  heap.require(kCasedBytes * text.size());
  return heap.text(fn(text), is_safe(self));
}

Value capitalize(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("capitalize", arguments, {});
  return changed(interpreter, self, [](const std::string& text) { return to_capitalized(text); });
}

Value upper(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("upper", arguments, {});
  return changed(interpreter, self, [](const std::string& text) { return to_upper(text); });
}

Value lower(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("lower", arguments, {});
  return changed(interpreter, self, [](const std::string& text) { return to_lower(text); });
}

/// A word begins behind white space and -({[<.
Value title(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("title", arguments, {});
  const std::string text = text_of(self, interpreter.heap());
  const auto ends_word = [](char32_t c) {
    return is_python_space(c) || (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) != std::string_view::npos);
  };
  std::string out;
  std::string_view rest = text;
  while (!rest.empty()) {
    std::string_view tail = rest;
    const bool is_break = ends_word(take_character(tail));
    if (!is_break) out += to_upper(rest.substr(0, rest.size() - tail.size()));
    const std::string_view word_tail = is_break ? rest : tail;
    std::string_view behind = word_tail;
    while (!behind.empty()) {
      std::string_view next = behind;
      if (ends_word(take_character(next)) != is_break) break;
      behind = next;
    }
    const std::string_view word = word_tail.substr(0, word_tail.size() - behind.size());
    out += is_break ? std::string(word) : to_lower(word);
    rest = behind;
  }
  return interpreter.heap().text(std::move(out));
}

Value trim(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("trim", arguments, {"chars"});
  return changed(interpreter, self, [&](const std::string& text) {
    return std::string(bound.has_value(0) ? strip_characters(text, bound.text(0, ""), Ends::kBoth) : strip_white_space(text));
  });
}

Value replace_filter(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  Heap& heap = interpreter.heap();
  const int64_t count = bound.has_value(2) ? bound.integer(2, -1) : -1;
  return heap.text(replaced(text_of(self, heap), text_of(bound[0], heap), text_of(bound[1], heap), count, heap));
}

Value string(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("string", arguments, {});
  return self.is_text() ? self : interpreter.heap().text(text_of(self, interpreter.heap()));
}

Value safe(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("safe", arguments, {});
  return is_safe(self) ? self : interpreter.heap().text(text_of(self, interpreter.heap()), true);
}

Value escape(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("escape", arguments, {});
  if (is_safe(self)) return self;
  return interpreter.heap().text(escape_html(text_of(self, interpreter.heap())), true);
}

Value force_escape(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("forceescape", arguments, {});
  return interpreter.heap().text(escape_html(text_of(self, interpreter.heap())), true);
}

Value format_filter(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  Heap& heap = interpreter.heap();
  if (!arguments.named.empty() && !arguments.positional.empty())
    fail("can't handle positional and keyword arguments at the same time");
  Value given = heap.tuple(arguments.positional);
  if (!arguments.named.empty()) {
    std::vector<Dict::Entry> entries;
    for (const auto& [name, value] : arguments.named) entries.emplace_back(heap.text(name), value);
    given = heap.dict(std::move(entries));
  }
  return heap.text(format_percent(text_of(self, heap), given, heap));
}

Value center(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("center", arguments, {"width"});
  Heap& heap = interpreter.heap();
  return heap.text(centered(text_of(self, heap), bound.integer(0, 80), " ", heap));
}

Value indent(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("indent", arguments, {"width", "first", "blank"});
  Heap& heap = interpreter.heap();
  if (self.is_undefined()) fail_undefined(self);
  if (!self.is_text()) fail(std::string("indent: unsupported operand type(s) for +=: '") + type_name(self) + "' and 'str'");
  const bool is_own_text = bound.has(0) && bound[0].is_text();
  const std::string indention = is_own_text ? bound[0].text() : repeat(heap.text(" "), bound.integer(0, 4), heap).text();
  const std::string text = self.text() + "\n";  // so that a line break at the end begins one more line
  const std::vector<std::string_view> lines = lines_of(text, false, heap);
  heap.require(text.size() + indention.size() * (lines.size() + 1));
  heap.read(text.size() + indention.size() * (lines.size() + 1));
  const bool indents_blank = bound.flag(2, false);
  std::string out = bound.flag(1, false) ? indention : "";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += "\n";
    if (i > 0 && (indents_blank || !lines[i].empty())) out += indention;
    out += lines[i];
  }
  return heap.text(std::move(out), is_safe(self));
}

Value truncate(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("truncate", arguments, {"length", "killwords", "end", "leeway"});
  Heap& heap = interpreter.heap();
  if (self.is_undefined()) return self;
  if (!self.is_text()) fail(std::string("truncate: a str is needed, not ") + type_name(self));
  const int64_t length = bound.integer(0, 255);
  const std::string_view end = bound.text(2, "...");
  const int64_t leeway = bound.has_value(3) ? bound.integer(3, 0) : 5;
  const int64_t end_length = num_code_points(end);
  if (length < end_length)
    fail("truncate: expected length >= " + std::to_string(end_length) + ", got " + std::to_string(length));
  if (leeway < 0) fail("truncate: expected leeway >= 0, got " + std::to_string(leeway));
  if (length_of(self, heap) - length <= leeway) return self;
  std::string cut = take_characters(*self.get<TextPtr>(), 0, length - end_length, 1);
  if (!bound.flag(1, false)) cut = cut.substr(0, cut.rfind(' '));
  return heap.text(cut.append(end));
}

Value word_count(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("wordcount", arguments, {});
  const std::string text = text_of(self, interpreter.heap());
  Int num_words = 0;
  bool is_in_word = false;
  for (std::string_view rest = text; !rest.empty();) {
    const char32_t c = take_character(rest);
    const bool is_part = c == '_' || is_letter(c) || is_numeric(c);
    if (is_part && !is_in_word) ++num_words;
    is_in_word = is_part;
  }
  return Value::integer(num_words);
}

std::string percent_encoded(std::string_view text, std::string_view kept) {
  std::string out;
  for (const char c : text) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (is_plain || std::string_view("_.-~").find(c) != std::string_view::npos || kept.find(c) != std::string_view::npos) {
      out.push_back(c);
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += {'%', "0123456789ABCDEF"[byte >> 4], "0123456789ABCDEF"[byte & 15]};
    }
  }
  return out;
}

Value url_encode(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Bound bound("urlencode", arguments, {});
  Heap& heap = interpreter.heap();
  if (self.is_text() || !is_iterable(self)) return heap.text(percent_encoded(text_of(self, heap), "/"));
  const auto query = [&](const Value& part) {
    std::string encoded = percent_encoded(text_of(part, heap), " ");
    std::replace(encoded.begin(), encoded.end(), ' ', '+');
    return encoded;
  };
  std::string out;
  const auto add = [&](const Value& key, const Value& value) {
    out += (out.empty() ? "" : "&") + query(key) + "=" + query(value);
    heap.require(out.size());
  };
  if (self.is<DictPtr>()) {
    for (const auto& [key, value] : self.dict().entries) add(key, value);
    return heap.text(std::move(out));
  }
  for (const Value& pair : items_of(self, heap)) {
    const std::vector<Value> parts = items_of(pair, heap);
    if (parts.size() != 2) fail("urlencode: pairs are needed");
    add(parts[0], parts[1]);
  }
  return heap.text(std::move(out));
}

constexpr std::array<Native, 17> kTextFilters = {{
    {"capitalize", capitalize},
    {"center", center},
    {"e", escape},
    {"escape", escape},
    {"forceescape", force_escape},
    {"format", format_filter},
    {"indent", indent},
    {"lower", lower},
    {"replace", replace_filter},
    {"safe", safe},
    {"string", string},
    {"title", title},
    {"trim", trim},
    {"truncate", truncate},
    {"upper", upper},
    {"urlencode", url_encode},
    {"wordcount", word_count},
}};

}  // namespace

std::span<const Native> text_filters() { return kTextFilters; }

}  // namespace ferry::jinja

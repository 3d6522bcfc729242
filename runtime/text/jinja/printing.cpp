#include "runtime/text/jinja/printing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "runtime/text/jinja/heap.h"
#include "runtime/text/jinja/numbers.h"
#include "runtime/text/unicode_case.h"

namespace ferry::jinja {
namespace {

constexpr std::size_t kReprBytes = 4, kJsonBytes = 6;  // bytes that one byte of a text takes at most
constexpr std::size_t kEscapedBytesPerStep = 2;        // a character may become six others

void append_hex(const char* format, char32_t c, std::string& out) {
  std::array<char, 16> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, static_cast<unsigned>(c));
  out += buffer.data();
}

void append_text_repr(std::string_view text, std::string& out) {
  const bool prefers_double = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = prefers_double ? '"' : '\'';
  out.push_back(quote);
  while (!text.empty()) {
    const char32_t c = take_character(text);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out.push_back('\\');
      out.push_back(static_cast<char>(c));
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (is_printable(c)) {
      append_character(c, out);
    } else {
      append_hex(c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c, out);
    }
  }
  out.push_back(quote);
}

/// Python's repr(), of values within each other.
class Repr {
 public:
  Repr(std::string& out, Heap& heap) : out_(out), heap_(heap) {}

  void append(const Value& value) {
    heap_.work();
    if (value.is_text()) {
      heap_.require(out_.size() + kReprBytes * value.text().size());
      heap_.work(static_cast<int64_t>(value.text().size() / kEscapedBytesPerStep));
      if (value.get<TextPtr>()->is_safe) out_ += "Markup(";
      append_text_repr(value.text(), out_);
      if (value.get<TextPtr>()->is_safe) out_ += ")";
    } else if (value.is<SequencePtr>()) {
      append_sequence(value.sequence());
    } else if (value.is<DictPtr>()) {
      append_entries(value.dict().entries);
    } else if (value.is<NamespacePtr>()) {
      append_namespace(*value.get<NamespacePtr>());
    } else if (value.is_undefined()) {
      out_ += "Undefined";
    } else {
      append_text(value, out_, heap_);
    }
  }

 private:
  void append_items(const std::vector<Value>& items) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += ", ";
      append(items[i]);
    }
  }

  void append_sequence(const Sequence& sequence) {
    heap_.require(out_.size());
    switch (sequence.form) {
      case Sequence::Form::kList:
        out_ += '[';
        append_items(sequence.items);
        out_ += ']';
        break;
      case Sequence::Form::kTuple:
        out_ += '(';
        append_items(sequence.items);
        out_ += sequence.items.size() == 1 ? ",)" : ")";
        break;
      case Sequence::Form::kRange: out_ += sequence.label; break;
      case Sequence::Form::kView:
        out_ += sequence.label + "([";
        append_items(sequence.items);
        out_ += "])";
        break;
      case Sequence::Form::kIterator: out_ += "<" + sequence.label + ">"; break;
    }
  }

  void append_entries(const std::vector<Dict::Entry>& entries) {
    heap_.require(out_.size());
    out_ += '{';
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += ", ";
      append(entries[i].first);
      out_ += ": ";
      append(entries[i].second);
    }
    out_ += '}';
  }

  /// A namespace may hold itself, through others too.
  void append_namespace(const Namespace& space) {
    if (++num_namespaces_ > heap_.limits().value_depth) fail("a namespace is printed that holds itself");
    heap_.require(out_.size());
    out_ += "<Namespace {";
    for (std::size_t i = 0; i < space.attributes.size(); ++i) {
      if (i > 0) out_ += ", ";
      heap_.read(space.attributes[i].first.size());
      append_text_repr(space.attributes[i].first, out_);
      out_ += ": ";
      append(space.attributes[i].second);
    }
    out_ += "}>";
    --num_namespaces_;
  }

  std::string& out_;
  Heap& heap_;
  int num_namespaces_ = 0;  // that are open
};

void append_json_text(std::string_view text, bool ensure_ascii, std::string& out) {
  out += '"';
  while (!text.empty()) {
    const char32_t c = take_character(text);
    switch (c) {
      case '"': out += "\\\""; continue;
      case '\\': out += "\\\\"; continue;
      case '\n': out += "\\n"; continue;
      case '\r': out += "\\r"; continue;
      case '\t': out += "\\t"; continue;
      case '\b': out += "\\b"; continue;
      case '\f': out += "\\f"; continue;
      default: break;
    }
    if (c >= 0x20 && (c < 0x7F || !ensure_ascii)) {
      append_character(c, out);
    } else if (c < 0x10000) {
      append_hex("\\u%04x", c, out);
    } else {
      append_hex("\\u%04x", 0xD800 + ((c - 0x10000) >> 10), out);
      append_hex("\\u%04x", 0xDC00 + ((c - 0x10000) & 0x3FF), out);
    }
  }
  out += '"';
}

class Json {
 public:
  Json(const JsonStyle& style, Heap& heap) : style_(style), heap_(heap) {}

  std::string take() { return std::move(out_); }

  void append(const Value& value) {
    heap_.work();
    if (value.is_text()) {
      append_string(value.text());
    } else if (is_list(value)) {
      append_list(value.sequence().items);
    } else if (value.is<DictPtr>()) {
      append_dict(value.dict());
    } else if (value.is_none() || value.is_number()) {
      out_ += scalar(value);
    } else {
      fail(std::string("Object of type ") + type_name(value) + " is not JSON serializable");
    }
  }

 private:
  static bool is_list(const Value& value) {
    if (!value.is<SequencePtr>()) return false;
    const Sequence::Form form = value.sequence().form;
    return form == Sequence::Form::kList || form == Sequence::Form::kTuple;
  }

  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (value.is<bool>()) return value.get<bool>() ? "true" : "false";
    if (value.is<Int>()) return int_text(value.get<Int>());
    const double number = value.get<double>();
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
    return float_text(number);
  }

  /// Appends a separator or an indent that the template chose.
  void append_given(std::string_view text) {
    heap_.require(out_.size() + text.size());
    heap_.read(text.size());
    out_ += text;
  }

  void append_string(std::string_view text) {
    heap_.require(out_.size() + kJsonBytes * text.size());
    heap_.work(static_cast<int64_t>(text.size() / kEscapedBytesPerStep));
    append_json_text(text, style_.ensure_ascii, out_);
  }

  void new_line() {
    if (!style_.indent) return;
    out_ += '\n';
    for (int i = 0; i < level_; ++i) append_given(*style_.indent);
  }

  void append_list(const std::vector<Value>& items) {
    if (items.empty()) {
      out_ += "[]";
      return;
    }
    heap_.require(out_.size());
    out_ += '[';
    ++level_;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) append_given(style_.between_items);
      new_line();
      append(items[i]);
    }
    --level_;
    new_line();
    out_ += ']';
  }

  void append_dict(const Dict& dict) {
    if (dict.entries.empty()) {
      out_ += "{}";
      return;
    }
    heap_.require(out_.size());
    std::vector<const Dict::Entry*> order;
    for (const Dict::Entry& entry : dict.entries) order.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(order.begin(), order.end(),
                       [&](const auto* a, const auto* b) { return compare(a->first, b->first, "<", heap_) < 0; });
    }
    out_ += '{';
    ++level_;
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (i > 0) append_given(style_.between_items);
      new_line();
      append_key(order[i]->first);
      append_given(style_.after_key);
      append(order[i]->second);
    }
    --level_;
    new_line();
    out_ += '}';
  }

  void append_key(const Value& key) {
    if (key.is_text()) {
      append_string(key.text());
    } else if (key.is_none() || key.is_number()) {
      out_ += '"' + scalar(key) + '"';
    } else {
      fail(std::string("keys must be str, int, float, bool or None, not ") + type_name(key));
    }
  }

  const JsonStyle& style_;
  Heap& heap_;
  std::string out_;
  int level_ = 0;
};

}  // namespace

void append_text(const Value& value, std::string& out, Heap& heap) {
  if (value.is_text()) {
    heap.require(out.size() + value.text().size());
    heap.read(value.text().size());
    out += value.text();
  } else if (value.is_undefined()) {
    return;
  } else if (value.is_none()) {
    out += "None";
  } else if (value.is<bool>()) {
    out += value.get<bool>() ? "True" : "False";
  } else if (value.is<Int>()) {
    out += int_text(value.get<Int>());
  } else if (value.is<double>()) {
    out += float_text(value.get<double>());
  } else if (value.is<ObjectPtr>()) {
    const std::string printed = value.get<ObjectPtr>()->printed();
    heap.require(out.size() + printed.size());
    heap.read(printed.size());
    out += printed;
  } else {
    Repr(out, heap).append(value);
  }
}

std::string text_of(const Value& value, Heap& heap) {
  std::string out;
  append_text(value, out, heap);
  return out;
}

std::string repr_of(const Value& value, Heap& heap) {
  std::string out;
  Repr(out, heap).append(value);
  return out;
}

std::string json_of(const Value& value, const JsonStyle& style, Heap& heap) {
  Json json(style, heap);
  json.append(value);
  return json.take();
}

std::string escape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '\'': out += "&#39;"; break;
      case '"': out += "&#34;"; break;
      default: out += c;
    }
  }
  return out;
}

}  // namespace ferry::jinja

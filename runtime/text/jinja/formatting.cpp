#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "runtime/text/jinja/interpreter.h"
#include "runtime/text/jinja/numbers.h"
#include "runtime/text/jinja/operators.h"
#include "runtime/text/jinja/printing.h"
#include "runtime/text/jinja/text_parts.h"
#include "runtime/text/jinja/text_search.h"
#include "runtime/text/unicode_case.h"

// Python's two languages of formats: "%5.1f" % value, and "{:>5.1f}".format(value).

namespace ferry::jinja {
namespace {

constexpr int64_t kWidthMax = 10'000;     // characters of one field
constexpr int64_t kPrecisionMax = 1'000;  // digits

/// How one value is written, in the words of both languages.
struct Field {
  std::string fill = " ";
  char align = '\0';  // < > ^ =, or what the type of the value has
  char sign = '-';    // also + and blank
  bool is_alternate = false;
  bool has_commas = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = '\0';
};

/// Counts what a field may take before it is written. A digit takes longer than another byte.
void count_digits(const Field& field, Heap& heap) {
  constexpr int64_t kStepsPerNumber = 16;  // one without a precision may have 300 digits
  heap.read(static_cast<std::size_t>(field.width));
  heap.work(kStepsPerNumber + std::max<int64_t>(field.precision, 0));
}

class FormatReader {
 public:
  explicit FormatReader(std::string_view text) : text_(text) {}

  bool done() const { return at_ >= text_.size(); }
  char peek() const { return done() ? '\0' : text_[at_]; }
  char take() { return done() ? '\0' : text_[at_++]; }
  bool skip(char c) { return peek() == c && !done() && (++at_, true); }
  std::string_view rest() const { return text_.substr(std::min(at_, text_.size())); }
  void pass(std::size_t num_bytes) { at_ += num_bytes; }

  int64_t take_number(int64_t most, const char* what) {
    int64_t number = 0;
    while (is_digit(peek())) {
      number = number * 10 + (take() - '0');
      if (number > most) fail(std::string("a format has a ") + what + " of more than " + std::to_string(most));
    }
    return number;
  }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
};

std::string padded(const std::string& text, const Field& field, char align, std::size_t sign_bytes = 0) {
  const int64_t missing = field.width - num_code_points(text);
  if (missing <= 0) return text;
  const auto filled = [&](int64_t count) {
    std::string out;
    for (int64_t i = 0; i < count; ++i) out += field.fill;
    return out;
  };
  if (align == '<') return text + filled(missing);
  if (align == '^') return filled(missing / 2) + text + filled(missing - missing / 2);
  if (align == '=') return text.substr(0, sign_bytes) + filled(missing) + text.substr(sign_bytes);
  return filled(missing) + text;
}

std::string with_commas(const std::string& digits) {
  std::string out = digits;
  const std::size_t end = std::min(out.find_first_not_of("0123456789"), out.size());
  for (std::size_t at = end; at > 3; at -= 3) out.insert(at - 3, ",");
  return out;
}

/// The sign of a number, and what stands for its base.
std::string prefix_of(bool is_negative, const Field& field, const char* base) {
  std::string prefix = is_negative ? "-" : field.sign == '+' ? "+" : field.sign == ' ' ? " " : "";
  return field.is_alternate ? prefix + base : prefix;
}

std::string format_float(double value, const Field& field) {
  const bool is_percent = field.type == '%';
  const char letter = is_percent ? 'f' : field.type;
  std::string digits;
  const double size = std::abs(is_percent ? value * 100 : value);
  if (!std::isfinite(size)) {
    digits = std::isnan(size) ? "nan" : "inf";
    if (letter == 'F' || letter == 'E' || letter == 'G') digits = to_upper(digits);
  } else if (letter == '\0' && field.precision < 0) {
    digits = float_text(size);
  } else {
    const std::string format =
        std::string(field.is_alternate ? "%#.*" : "%.*") + (letter == '\0' || letter == 'n' ? 'g' : letter);
    std::array<char, kPrecisionMax + 400> buffer{};
    const auto precision = static_cast<int>(field.precision < 0 ? 6 : field.precision);
    std::snprintf(buffer.data(), buffer.size(), format.c_str(), precision, size);
    digits = buffer.data();
    if (letter == '\0' && digits.find_first_of(".e") == std::string::npos) digits += ".0";
  }
  if (is_percent) digits += '%';
  if (field.has_commas) digits = with_commas(digits);
  const std::string prefix = prefix_of(std::signbit(value) && !std::isnan(value), {.sign = field.sign}, "");
  return padded(prefix + digits, field, field.align == '\0' ? '>' : field.align, prefix.size());
}

std::string format_integer(Int value, const Field& field) {
  const Int size = value < 0 ? -value : value;
  std::string digits;
  const char* base = "";
  switch (field.type) {
    case 'x':
    case 'X':
      digits = int_text(size, 16);
      base = field.type == 'x' ? "0x" : "0X";
      if (field.type == 'X') digits = to_upper(digits);
      break;
    case 'o': digits = int_text(size, 8), base = "0o"; break;
    case 'b': digits = int_text(size, 2), base = "0b"; break;
    default: digits = int_text(size);
  }
  if (field.has_commas) digits = with_commas(digits);
  if (field.precision > std::ssize(digits)) digits.insert(0, static_cast<std::size_t>(field.precision) - digits.size(), '0');
  const std::string prefix = prefix_of(value < 0, field, base);
  return padded(prefix + digits, field, field.align == '\0' ? '>' : field.align, prefix.size());
}

std::string format_text(const std::string& text, const Field& field) {
  std::string cut = text;
  if (field.precision >= 0 && field.precision < num_code_points(text)) cut.resize(byte_offset(text, field.precision));
  return padded(cut, field, field.align == '\0' ? '<' : field.align);
}

const Value& defined(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
  return value;
}

// --- text % arguments ---

class PercentFormat {
 public:
  PercentFormat(std::string_view format, const Value& arguments, Heap& heap)
      : reader_(format), arguments_(arguments), heap_(heap) {
    if (arguments.is<SequencePtr>() && arguments.sequence().form == Sequence::Form::kTuple)
      items_ = &arguments.sequence().items;
  }

  std::string run() {
    std::string out;
    while (!reader_.done()) {
      const char c = reader_.take();
      heap_.require(out.size());
      if (c != '%') {
        out.push_back(c);
      } else {
        out += one();
      }
    }
    const std::size_t num_given = items_ != nullptr ? items_->size() : 1;
    const bool takes_all = arguments_.is<DictPtr>() || arguments_.is<SequencePtr>() ? items_ == nullptr : false;
    if (!takes_all && !has_keys_ && num_taken_ < num_given) fail("not all arguments converted during string formatting");
    return out;
  }

 private:
  std::string one() {
    heap_.work(4);
    const Value* named = take_key();
    Field field;
    bool is_left = false, is_zero = false;
    for (;; reader_.take()) {
      const char flag = reader_.peek();
      if (flag == '-')
        is_left = true;
      else if (flag == '0')
        is_zero = true;
      else if (flag == '+' || (flag == ' ' && field.sign != '+'))
        field.sign = flag;
      else if (flag == '#')
        field.is_alternate = true;
      else if (flag != ' ')
        break;
    }
    field.width = take_size(kWidthMax, "width");
    if (field.width < 0) is_left = true, field.width = -field.width;
    if (reader_.skip('.')) field.precision = std::max<int64_t>(take_size(kPrecisionMax, "precision"), 0);
    while (reader_.peek() == 'h' || reader_.peek() == 'l' || reader_.peek() == 'L') reader_.take();
    if (reader_.done()) fail("incomplete format");
    field.type = reader_.take();
    field.align = is_left ? '<' : '>';
    if (field.type == '%') return "%";
    if (is_zero && !is_left && field.type != 's' && field.type != 'r' && field.type != 'c') field.fill = "0", field.align = '=';
    count_digits(field, heap_);
    return convert(named != nullptr ? *named : next(), field);
  }

  /// Of "%(key)s"; null without one.
  const Value* take_key() {
    if (!reader_.skip('(')) return nullptr;
    const std::size_t end = reader_.rest().find(')');
    if (end == std::string_view::npos) fail("incomplete format key");
    const std::string key(reader_.rest().substr(0, end));
    reader_.pass(end + 1);
    has_keys_ = true;
    if (!arguments_.is<DictPtr>()) fail("format requires a mapping");
    const Value* found = arguments_.dict().find(key);
    if (found == nullptr) fail("KeyError: '" + key + "'");
    return found;
  }

  int64_t take_size(int64_t most, const char* what) {
    if (!reader_.skip('*')) return reader_.take_number(most, what);
    const std::optional<Int> size = next().as_int();
    if (!size) fail("* wants int");
    if (*size > most || *size < -most) fail(std::string("a format has a ") + what + " of more than " + std::to_string(most));
    return static_cast<int64_t>(*size);
  }

  const Value& next() {
    if (items_ == nullptr && num_taken_++ == 0) return arguments_;
    if (items_ == nullptr || num_taken_ >= items_->size()) fail("not enough arguments for format string");
    return (*items_)[num_taken_++];
  }

  std::string convert(const Value& value, Field field) {
    switch (field.type) {
      case 's': return format_text(text_of(value, heap_), field);
      case 'r':
      case 'a': return format_text(repr_of(value, heap_), field);
      case 'c': {
        if (value.is_text() && num_code_points(*value.get<TextPtr>()) == 1) return format_text(value.text(), field);
        const std::optional<Int> code = value.as_int();
        if (!code || *code < 0 || *code > 0x10FFFF) fail("%c requires int or char");
        std::string text;
        append_character(static_cast<char32_t>(*code), text);
        return format_text(text, field);
      }
      default: break;
    }
    defined(value);
    const bool is_integer = std::string_view("diuxXo").find(field.type) != std::string_view::npos;
    const bool is_float = std::string_view("eEfFgG").find(field.type) != std::string_view::npos;
    if (!is_integer && !is_float) fail(std::string("unsupported format character '") + field.type + "'");
    if (!value.is_number()) {
      fail(is_float ? std::string("must be real number, not ") + type_name(value)
                    : std::string("%") + field.type + " format: a real number is required, not " + type_name(value));
    }
    if (is_float) return format_float(to_double(value), field);
    if (value.is<double>() && field.type != 'd' && field.type != 'i' && field.type != 'u')
      fail(std::string("%") + field.type + " format: an integer is required, not float");
    return format_integer(value.is<double>() ? truncate_float(value.get<double>()) : *value.as_int(), field);
  }

  FormatReader reader_;
  const Value& arguments_;
  Heap& heap_;
  const std::vector<Value>* items_ = nullptr;
  std::size_t num_taken_ = 0;
  bool has_keys_ = false;
};

// --- text.format(arguments) ---

class BracesFormat {
 public:
  BracesFormat(const Arguments& arguments, Interpreter& interpreter) : arguments_(arguments), interpreter_(interpreter) {}

  std::string run(std::string_view format, int depth) {
    if (depth > 2) fail("Max string recursion exceeded");
    std::string out;
    FormatReader reader(format);
    while (!reader.done()) {
      const char c = reader.take();
      interpreter_.heap().require(out.size());
      if (c == '}' && !reader.skip('}')) fail("Single '}' encountered in format string");
      if (c != '{' || reader.skip('{')) {
        out.push_back(c);
      } else {
        out += one(reader, depth);
      }
    }
    return out;
  }

 private:
  std::string one(FormatReader& reader, int depth) {
    interpreter_.heap().work(4);
    std::string_view inside = take_field(reader);
    std::string_view specification;
    const std::size_t colon = inside.find_first_of(":!");  // neither is part of a field's name here
    const std::string_view name = inside.substr(0, colon);
    char conversion = '\0';
    if (colon != std::string_view::npos) {
      specification = inside.substr(colon + 1);
      if (inside[colon] == '!') {
        if (specification.empty()) fail("end of string while looking for conversion specifier");
        conversion = specification.front();
        specification.remove_prefix(1);
        if (!specification.empty() && specification.front() != ':') fail("expected ':' after conversion specifier");
        if (!specification.empty()) specification.remove_prefix(1);
      }
    }
    Value value = find(name);
    Heap& heap = interpreter_.heap();
    if (conversion == 'r' || conversion == 'a') value = heap.text(repr_of(value, heap));
    if (conversion == 's') value = heap.text(text_of(value, heap));
    return convert(value, run(specification, depth + 1));
  }

  /// What stands between the braces; braces may be nested in it.
  static std::string_view take_field(FormatReader& reader) {
    const std::string_view rest = reader.rest();
    int level = 1;
    for (std::size_t i = 0; i < rest.size(); ++i) {
      if (rest[i] == '{') ++level;
      if (rest[i] == '}' && --level == 0) {
        reader.pass(i + 1);
        return rest.substr(0, i);
      }
    }
    fail("expected '}' before end of string");
  }

  Value find(std::string_view name) {
    FormatReader reader(name);
    const std::size_t head_end = std::min(name.find_first_of(".["), name.size());
    const std::string head(name.substr(0, head_end));
    reader.pass(head_end);
    Value value = head_value(head);
    Heap& heap = interpreter_.heap();
    while (!reader.done()) {
      heap.work();
      if (reader.skip('.')) {
        const std::size_t end = std::min(reader.rest().find_first_of(".["), reader.rest().size());
        const Value key = heap.text(std::string(reader.rest().substr(0, end)));
        reader.pass(end);
        value = attribute_of(value, key.get<TextPtr>(), interpreter_);
      } else {
        reader.take();
        const std::size_t end = reader.rest().find(']');
        if (end == std::string_view::npos) fail("Missing ']' in format string");
        const std::string key(reader.rest().substr(0, end));
        reader.pass(end + 1);
        const bool is_index = !key.empty() && std::all_of(key.begin(), key.end(), is_digit) && key.size() < 18;
        value = item_of(value, is_index ? Value::integer(std::stoll(key)) : heap.text(key), interpreter_);
      }
    }
    return value;
  }

  Value head_value(const std::string& head) {
    if (head.empty() || std::all_of(head.begin(), head.end(), is_digit)) {
      const std::size_t index = head.empty() ? num_taken_++ : head.size() < 9 ? std::stoul(head) : SIZE_MAX;
      if (index >= arguments_.positional.size()) fail("Replacement index " + head + " out of range for positional args tuple");
      return arguments_.positional[index];
    }
    LookUp look_up(&interpreter_.heap(), head);
    for (const auto& [name, value] : arguments_.named)
      if (look_up.is_it(name)) return value;
    fail("KeyError: '" + head + "'");
  }

  std::string convert(const Value& value, const std::string& specification) {
    Heap& heap = interpreter_.heap();
    if (specification.empty()) return text_of(value, heap);
    const Field field = field_of(specification);
    count_digits(field, heap);
    const bool is_text = value.is_text() || value.is_undefined();
    if (is_text && (field.type == '\0' || field.type == 's')) return format_text(text_of(value, heap), field);
    const bool is_float_type = field.type != '\0' && std::string_view("eEfFgGn%").find(field.type) != std::string_view::npos;
    const bool is_integer_type = field.type != '\0' && std::string_view("bdoxXn").find(field.type) != std::string_view::npos;
    if (value.is<double>() && (field.type == '\0' || is_float_type)) return format_float(value.get<double>(), field);
    if (value.as_int() && !value.is<double>()) {
      if (is_float_type && field.type != 'n') return format_float(to_double(value), field);
      if (field.type == 'c') return format_text(character(*value.as_int()), field);
      if (field.type == '\0' || is_integer_type) return format_integer(*value.as_int(), field);
    }
    if (value.is_number() || is_text)
      fail(std::string("Unknown format code '") + field.type + "' for object of type '" + type_name(value) + "'");
    fail(std::string("unsupported format string passed to ") + type_name(value) + ".__format__");
  }

  static std::string character(Int code) {
    if (code < 0 || code > 0x10FFFF) fail("%c arg not in range(0x110000)");
    std::string text;
    append_character(static_cast<char32_t>(code), text);
    return text;
  }

  /// [[fill]align][sign][#][0][width][,][.precision][type]
  static Field field_of(std::string_view specification) {
    const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
    Field field;
    FormatReader reader(specification);
    const std::size_t first_bytes = character_bytes(specification);
    if (specification.size() > first_bytes && is_align(specification[first_bytes])) {
      field.fill = std::string(specification.substr(0, first_bytes));
      reader.pass(first_bytes);
      field.align = reader.take();
    } else if (is_align(reader.peek())) {
      field.align = reader.take();
    }
    if (reader.peek() == '+' || reader.peek() == '-' || reader.peek() == ' ') field.sign = reader.take();
    field.is_alternate = reader.skip('#');
    if (reader.skip('0') && field.align == '\0') field.fill = "0", field.align = '=';
    field.width = reader.take_number(kWidthMax, "width");
    field.has_commas = reader.skip(',');
    if (reader.skip('.')) field.precision = reader.take_number(kPrecisionMax, "precision");
    field.type = reader.take();
    if (!reader.done()) fail("Invalid format specifier '" + std::string(specification) + "'");
    return field;
  }

  const Arguments& arguments_;
  Interpreter& interpreter_;
  std::size_t num_taken_ = 0;
};

}  // namespace

std::string format_percent(const std::string& format, const Value& arguments, Heap& heap) {
  heap.read(format.size());
  return PercentFormat(format, arguments, heap).run();
}

std::string format_braces(const std::string& format, const Arguments& arguments, Interpreter& interpreter) {
  interpreter.heap().read(format.size());
  return BracesFormat(arguments, interpreter).run(format, 0);
}

}  // namespace ferry::jinja

#include "runtime/text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "runtime/text/jinja/limits.h"
#include "runtime/text/jinja/numbers.h"
#include "runtime/text/jinja/text_search.h"
#include "runtime/text/unicode_case.h"
#include "runtime/text/unicode_text.h"

namespace ferry::jinja {
namespace {

bool is_blank_line(std::string_view text) { return !text.empty() && strip_white_space(text).empty(); }

/// The value of hexadecimal digits at `at`, which it passes; nothing unless there are `num_digits`.
std::optional<char32_t> take_hex(std::string_view text, std::size_t& at, std::size_t num_digits) {
  const std::string_view digits = text.substr(std::min(at, text.size()), num_digits);
  if (digits.size() < num_digits || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos)
    return std::nullopt;
  at += num_digits;
  return static_cast<char32_t>(std::strtoul(std::string(digits).c_str(), nullptr, 16));
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) take_data();
    add(Token::Kind::kEnd);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void refuse(const std::string& message) { throw SyntaxFault{message, line()}; }

  std::string_view rest() const { return source_.substr(at_); }

  /// Of the place that is read now.
  int line() {
    num_lines_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(counted_),
                                              source_.begin() + static_cast<std::ptrdiff_t>(at_), '\n'));
    counted_ = at_;
    return num_lines_;
  }

  Token& add(Token::Kind kind, std::string text = "") {
    Token& token = tokens_.emplace_back();
    token.kind = kind;
    token.line = line();
    token.text = std::move(text);
    return token;
  }

  void skip_space() { at_ = source_.size() - strip_white_space_left(rest()).size(); }

  /// The text up to the next tag, and that tag.
  void take_data() {
    std::size_t begin = at_;
    while (true) {
      begin = source_.find('{', begin);
      if (begin == std::string_view::npos) {
        add(Token::Kind::kData, std::string(rest()));
        at_ = source_.size();
        return;
      }
      const char next = begin + 1 < source_.size() ? source_[begin + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') break;
      ++begin;
    }
    const char letter = source_[begin + 1];
    const char sign = begin + 2 < source_.size() ? source_[begin + 2] : '\0';
    add_data(source_.substr(at_, begin - at_), sign, letter != '{');
    at_ = begin + 2 + (sign == '-' || sign == '+' ? 1 : 0);
    if (letter == '#') {
      take_comment();
    } else if (letter == '{') {
      add(Token::Kind::kOutputBegin);
      take_expression(Token::Kind::kOutputEnd);
    } else if (!take_raw()) {
      add(Token::Kind::kBlockBegin);
      take_expression(Token::Kind::kBlockEnd);
    }
  }

  /// Text before a tag that begins with `sign`.
  void add_data(std::string_view text, char sign, bool takes_blanks) {
    if (sign == '-') {
      text = strip_white_space_right(text);
    } else if (sign != '+' && takes_blanks) {
      const std::size_t line_begin = text.rfind('\n') + 1;  // npos + 1 is 0
      if ((line_begin > 0 || begins_line_) && is_blank_line(text.substr(line_begin))) text = text.substr(0, line_begin);
    }
    if (!text.empty()) add(Token::Kind::kData, std::string(text));
  }

  /// Passes the end of a block, a comment or an output if it is here. `end` is without its sign.
  bool take_end(std::string_view end, bool trims) {
    const std::size_t begin = at_;
    if (rest().starts_with('-') && rest().substr(1).starts_with(end)) {
      at_ += 1 + end.size();
      skip_space();
    } else if (trims && rest().starts_with('+') && rest().substr(1).starts_with(end)) {
      at_ += 1 + end.size();
    } else if (rest().starts_with(end)) {
      at_ += end.size();
      if (trims && rest().starts_with('\n')) ++at_;
    } else {
      return false;
    }
    begins_line_ = at_ > begin && source_[at_ - 1] == '\n';
    return true;
  }

  void take_comment() {
    if (at_ >= source_.size()) return;  // jinja2 does not miss the end of what has not begun
    const std::size_t end = rest().find("#}");
    if (end == std::string_view::npos) refuse("a comment has no end");
    const bool has_sign = end > 0 && (source_[at_ + end - 1] == '-' || source_[at_ + end - 1] == '+');
    at_ += end - (has_sign ? 1 : 0);
    take_end("#}", true);
  }

  /// `{% raw %}` and what follows to its end, if that is what stands here.
  bool take_raw() {
    constexpr std::string_view kRaw = "raw";
    const std::size_t begin = at_;
    skip_space();
    if (rest().starts_with(kRaw)) {
      at_ += kRaw.size();
      skip_space();
      if (take_end("%}", false)) {
        take_raw_data();
        return true;
      }
    }
    at_ = begin;
    return false;
  }

  void take_raw_data() {
    if (at_ >= source_.size()) return;  // as of a comment
    const std::size_t data_begin = at_;
    for (std::size_t tag = source_.find("{%", at_); tag != std::string_view::npos; tag = source_.find("{%", tag + 1)) {
      at_ = tag + 2;
      const char sign = at_ < source_.size() ? source_[at_] : '\0';
      if (sign == '-' || sign == '+') ++at_;
      skip_space();
      if (!rest().starts_with("endraw")) continue;
      at_ += 6;
      skip_space();
      const bool begins_line = begins_line_;
      if (!take_end("%}", true)) continue;
      const std::size_t end = std::exchange(at_, data_begin);
      const bool ends_line = std::exchange(begins_line_, begins_line);
      add_data(source_.substr(data_begin, tag - data_begin), sign, true);
      at_ = end;
      begins_line_ = ends_line;
      return;
    }
    refuse("{% raw %} has no end");
  }

  void take_expression(Token::Kind end_kind) {
    const bool is_block = end_kind == Token::Kind::kBlockEnd;
    std::string open;  // brackets
    while (true) {
      skip_space();
      if (at_ >= source_.size()) {
        refuse(is_block ? "a block has no %}" : "an output has no }}");
      }
      if (open.empty() && take_end(is_block ? "%}" : "}}", is_block)) {
        const std::size_t end = std::exchange(at_, at_ - 1);  // the line that the tag ends on
        add(end_kind);
        at_ = end;
        return;
      }
      take_token(open);
    }
  }

  void take_token(std::string& open) {
    const char c = source_[at_];
    if (is_digit(c)) {
      take_number();
    } else if (c == '\'' || c == '"') {
      take_string(c);
    } else if (is_name_part(rest())) {
      const std::size_t begin = at_;
      while (at_ < source_.size() && is_name_part(rest())) at_ += next_utf8(rest()).num_bytes;
      const std::size_t end = std::exchange(at_, begin);
      add(Token::Kind::kName, std::string(source_.substr(begin, end - begin)));
      at_ = end;
    } else {
      take_operator(open);
    }
  }

  static bool is_name_part(std::string_view text) {
    const char32_t c = take_character(text);
    if (c < 0x80) return c == '_' || is_digit(static_cast<char>(c)) || is_letter(c);
    return c != 0xFFFD && (is_letter(c) || is_numeric(c));
  }

  std::size_t digits_end(std::size_t from, std::string_view digits) const {
    std::size_t end = from;
    while (end < source_.size() && (digits.find(source_[end]) != std::string_view::npos ||
                                    (source_[end] == '_' && end > from && source_[end - 1] != '_')))
      ++end;
    while (end > from && source_[end - 1] == '_') --end;
    return end;
  }

  void take_number() {
    constexpr std::string_view kDigits = "0123456789";
    const bool follows_dot = at_ > 0 && source_[at_ - 1] == '.';
    std::size_t end = digits_end(at_, kDigits);
    bool is_float = false;
    if (!follows_dot && end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
      end = digits_end(end + 1, kDigits);
      is_float = true;
    }
    if (!follows_dot && end < source_.size() && (source_[end] | 0x20) == 'e') {
      std::size_t exponent = end + 1;
      if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) ++exponent;
      if (exponent < source_.size() && is_digit(source_[exponent])) {
        end = digits_end(exponent, kDigits);
        is_float = true;
      }
    }
    if (is_float) {
      std::string text(source_.substr(at_, end - at_));
      std::erase(text, '_');
      add(Token::Kind::kFloat, text).number = std::strtod(text.c_str(), nullptr);
      at_ = end;
      return;
    }
    take_integer(end);
  }

  void take_integer(std::size_t decimal_end) {
    std::size_t end = decimal_end;
    if (source_[at_] == '0') {
      end = digits_end(at_, "0");
      const char letter = at_ + 1 < source_.size() ? static_cast<char>(source_[at_ + 1] | 0x20) : '\0';
      const std::string_view digits = letter == 'x'   ? "0123456789abcdefABCDEF"
                                      : letter == 'o' ? "01234567"
                                      : letter == 'b' ? "01"
                                                      : "";
      const std::size_t digits_begin = at_ + (at_ + 2 < source_.size() && source_[at_ + 2] == '_' ? 3 : 2);
      if (!digits.empty() && digits_begin < source_.size() && digits_end(digits_begin, digits) > digits_begin)
        end = digits_end(digits_begin, digits);
    }
    const std::string text(source_.substr(at_, end - at_));
    try {
      add(Token::Kind::kInteger, text).integer = parse_int(text, 0).value_or(0);
    } catch (const Fault& fault) {
      refuse(fault.message);
    }
    at_ = end;
  }

  void take_string(char quote) {
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) refuse("a string has no end");
    add(Token::Kind::kString, unescaped(source_.substr(at_ + 1, end - at_ - 1)));
    at_ = end + 1;
  }

  /// Python's unicode-escape. Halves of surrogate pairs become U+FFFD, for they are no text.
  std::string unescaped(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size();) {
      if (text[i] != '\\' || i + 1 == text.size()) {
        out.push_back(text[i++]);
        continue;
      }
      const char letter = text[i + 1];
      i += 2;
      constexpr std::string_view kLetters = "ntrabfv\\'\"";
      constexpr std::string_view kMeanings = "\n\t\r\a\b\f\v\\'\"";
      const std::size_t known = kLetters.find(letter);
      if (known != std::string_view::npos) {
        out.push_back(kMeanings[known]);
      } else if (letter == 'x' || letter == 'u' || letter == 'U') {
        const std::optional<char32_t> c = take_hex(text, i, letter == 'x' ? 2 : letter == 'u' ? 4 : 8);
        if (!c || *c > 0x10FFFF) refuse(std::string("a string has a \\") + letter + " without its hexadecimal digits");
        append_character(*c, out);
      } else if (letter >= '0' && letter <= '7') {
        char32_t c = static_cast<char32_t>(letter - '0');
        for (int n = 1; n < 3 && i < text.size() && text[i] >= '0' && text[i] <= '7'; ++n)
          c = c * 8 + static_cast<char32_t>(text[i++] - '0');
        append_character(c, out);
      } else if (letter == 'N') {
        refuse("characters by name (\\N) are not supported");
      } else if (letter != '\n') {
        out.push_back('\\');
        out.push_back(letter);
      }
    }
    return out;
  }

  void take_operator(std::string& open) {
    constexpr std::array<std::string_view, 6> kLong = {"//", "**", "==", "!=", ">=", "<="};
    constexpr std::string_view kShort = "+-/*%~[](){}><=.:|,;";
    std::string_view found = rest().substr(0, 2);
    if (std::find(kLong.begin(), kLong.end(), found) == kLong.end()) found = rest().substr(0, 1);
    if (found.size() == 1 && kShort.find(found) == std::string_view::npos)
      refuse("unexpected character '" + std::string(rest().substr(0, next_utf8(rest()).num_bytes)) + "'");
    const std::size_t opening = std::string_view("([{").find(found);
    const bool is_closing = found == ")" || found == "]" || found == "}";
    if (opening != std::string_view::npos) open.push_back(")]}"[opening]);
    if (is_closing) {
      if (open.empty()) refuse("unexpected '" + std::string(found) + "'");
      if (open.back() != found.front()) refuse("unexpected '" + std::string(found) + "', expected '" + open.back() + "'");
      open.pop_back();
    }
    add(Token::Kind::kOperator, std::string(found));
    at_ += found.size();
  }

  std::string_view source_;
  std::size_t at_ = 0;
  std::size_t counted_ = 0;  // bytes whose line breaks are in num_lines_
  int num_lines_ = 1;
  bool begins_line_ = true;  // the last tag took the line break behind it
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace ferry::jinja

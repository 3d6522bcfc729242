#include "runtime/text/jinja/numbers.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "runtime/text/jinja/limits.h"
#include "runtime/text/unicode_text.h"

namespace ferry::jinja {
namespace {

bool both_ints(const Value& a, const Value& b) { return !a.is<double>() && !b.is<double>(); }

Value checked(Int value) {
  if (value > kIntMax || value < -kIntMax) fail("an integer has more than 100 bits");
  return Value::integer(value);
}

[[noreturn]] void fail_zero(const char* what) { fail(std::string(what) + " by zero"); }

Int floor_divide(Int a, Int b) {
  const Int quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

double floor_modulo(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return rest == 0 ? std::copysign(0.0, b) : rest;
}

/// Python's float // float.
double floor_divide(double a, double b) {
  const double rest = floor_modulo(a, b);
  const double quotient = (a - rest) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1 : floored;
}

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 99;
}

/// The base that a prefix names, which is taken off; 10 without one.
int take_base_prefix(std::string_view& text, int wanted) {
  if (text.size() > 2 && text[0] == '0') {
    const char letter = static_cast<char>(text[1] | 0x20);
    const int base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (base != 0 && (wanted == 0 || wanted == base)) {
      text.remove_prefix(2);
      if (text.front() == '_') text.remove_prefix(1);
      return base;
    }
  }
  return wanted == 0 ? 10 : wanted;
}

}  // namespace

std::string int_text(Int value, unsigned base) {
  const bool is_negative = value < 0;
  auto rest = static_cast<UnsignedInt>(is_negative ? -value : value);
  std::string digits;
  do {
    digits.push_back("0123456789abcdef"[static_cast<unsigned>(rest % base)]);
    rest /= base;
  } while (rest != 0);
  if (is_negative) digits.push_back('-');
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 64> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific).ptr;
  const std::string scientific(buffer.data(), end);
  const std::size_t e = scientific.find('e');
  const int exponent = std::stoi(scientific.substr(e + 1));
  if (exponent < -4 || exponent >= 16) return scientific;
  const auto fixed_end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed).ptr;
  std::string fixed(buffer.data(), fixed_end);
  return fixed.find('.') == std::string::npos ? fixed + ".0" : fixed;
}

std::optional<Int> parse_int(std::string_view text, int base) {
  text = strip_white_space(text);
  const bool is_negative = text.starts_with('-');
  if (is_negative || text.starts_with('+')) text.remove_prefix(1);
  const bool by_prefix = base == 0;
  base = take_base_prefix(text, base);
  if (text.empty() || text.front() == '_' || text.back() == '_') return std::nullopt;
  if (by_prefix && base == 10 && text.size() > 1 && text.front() == '0' &&
      text.find_first_not_of("0_") != std::string_view::npos)
    return std::nullopt;
  Int value = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_' && text[i - 1] != '_') continue;
    const int digit = digit_value(text[i]);
    if (digit >= base) return std::nullopt;
    value = value * base + digit;
    checked(value);
  }
  return is_negative ? -value : value;
}

std::optional<double> parse_float(std::string_view text) {
  text = strip_white_space(text);
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      plain.push_back(text[i]);
    } else if (i == 0 || i + 1 == text.size() || digit_value(text[i - 1]) > 9 || digit_value(text[i + 1]) > 9) {
      return std::nullopt;
    }
  }
  std::string_view rest = plain;
  const bool is_negative = rest.starts_with('-');
  if (is_negative || rest.starts_with('+')) rest.remove_prefix(1);
  if (rest.empty() || rest.front() == '-' || rest.find_first_of("xX(") != std::string_view::npos) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (end != rest.data() + rest.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) value = std::strtod(plain.c_str() + (is_negative ? 1 : 0), nullptr);
  return is_negative ? -value : value;
}

int64_t clamp_to_int64(Int value) { return static_cast<int64_t>(std::clamp<Int>(value, INT64_MIN, INT64_MAX)); }

Int truncate_float(double value) {
  if (std::isnan(value)) fail("cannot convert float NaN to integer");
  if (std::abs(value) > static_cast<double>(kIntMax)) fail("a float is too large for an integer");
  return static_cast<Int>(value);
}

double to_double(const Value& number) {
  return number.is<double>() ? number.get<double>() : static_cast<double>(*number.as_int());
}

double round_float(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 323) return value;
  if (digits < -308) return std::copysign(0.0, value);
  if (digits < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-digits));
    return std::nearbyint(value / unit) * unit;
  }
  std::array<char, 800> buffer{};  // printf rounds the exact value, half to even
  std::snprintf(buffer.data(), buffer.size(), "%.*f", static_cast<int>(digits), value);
  return std::strtod(buffer.data(), nullptr);
}

Value add_numbers(const Value& a, const Value& b) {
  if (both_ints(a, b)) return checked(*a.as_int() + *b.as_int());
  return to_double(a) + to_double(b);
}

Value subtract_numbers(const Value& a, const Value& b) {
  if (both_ints(a, b)) return checked(*a.as_int() - *b.as_int());
  return to_double(a) - to_double(b);
}

Value multiply_numbers(const Value& a, const Value& b) {
  const double product = to_double(a) * to_double(b);
  if (!both_ints(a, b)) return product;
  if (std::abs(product) > static_cast<double>(kIntMax)) checked(kIntMax + 1);
  return checked(*a.as_int() * *b.as_int());
}

Value divide_numbers(const Value& a, const Value& b) {
  if (to_double(b) == 0) fail_zero(both_ints(a, b) ? "division" : "float division");
  return to_double(a) / to_double(b);
}

Value floor_divide_numbers(const Value& a, const Value& b) {
  if (to_double(b) == 0) fail_zero(both_ints(a, b) ? "integer division or modulo" : "float floor division");
  if (both_ints(a, b)) return Value::integer(floor_divide(*a.as_int(), *b.as_int()));
  return floor_divide(to_double(a), to_double(b));
}

Value modulo_numbers(const Value& a, const Value& b) {
  if (to_double(b) == 0) fail_zero(both_ints(a, b) ? "integer modulo" : "float modulo");
  if (!both_ints(a, b)) return floor_modulo(to_double(a), to_double(b));
  return Value::integer(*a.as_int() - floor_divide(*a.as_int(), *b.as_int()) * *b.as_int());
}

Value power_numbers(const Value& a, const Value& b) {
  if (!both_ints(a, b) || *b.as_int() < 0) {
    if (to_double(a) == 0 && to_double(b) < 0) fail("0.0 cannot be raised to a negative power");
    if (to_double(a) < 0 && std::floor(to_double(b)) != to_double(b)) fail("a power is a complex number");
    const double power = std::pow(to_double(a), to_double(b));
    if (std::isinf(power) && std::isfinite(to_double(a)) && std::isfinite(to_double(b))) fail("a power is out of range");
    return power;
  }
  const Int base = *a.as_int();
  if (base == 0 || base == 1) return Value::integer(*b.as_int() == 0 ? 1 : base);
  if (base == -1) return Value::integer(*b.as_int() % 2 == 0 ? 1 : -1);
  Value result = Value::integer(1);
  for (Int i = 0; i < *b.as_int(); ++i) result = multiply_numbers(result, Value::integer(base));  // refused after 100 at most
  return result;
}

Value negate_number(const Value& a) {
  if (a.is<double>()) return -a.get<double>();
  return Value::integer(-*a.as_int());
}

}  // namespace ferry::jinja

#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/text/jinja/value.h"

// Python's numbers: how they are written and read.

namespace ferry::jinja {

inline constexpr Int kIntMax = Int{1} << 100;  // of either sign; what is beyond is refused

std::string int_text(Int value, unsigned base = 10);
/// The shortest text that reads back as `value`, as Python's repr writes it: 1.0, 1e-05, 1e+16, inf, nan.
std::string float_text(double value);

/// int(text, base), nothing where Python raises ValueError. Base 0 goes by the prefix.
std::optional<Int> parse_int(std::string_view text, int base);
/// float(text).
std::optional<double> parse_float(std::string_view text);

/// A number that fits an index or count; larger ones become the largest.
int64_t clamp_to_int64(Int value);
/// int(value) of a float; fails for what is no number or too large.
Int truncate_float(double value);
double to_double(const Value& number);
/// round(): half to even, at `digits` decimal places.
double round_float(double value, int64_t digits);

Value add_numbers(const Value& a, const Value& b);
Value subtract_numbers(const Value& a, const Value& b);
Value multiply_numbers(const Value& a, const Value& b);
Value divide_numbers(const Value& a, const Value& b);
Value floor_divide_numbers(const Value& a, const Value& b);
Value modulo_numbers(const Value& a, const Value& b);
Value power_numbers(const Value& a, const Value& b);
Value negate_number(const Value& a);

}  // namespace ferry::jinja

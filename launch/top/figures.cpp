#include "launch/top/figures.h"

#include <array>
#include <cmath>
#include <cstdio>

namespace ferry {
namespace {

std::string with_digits(double value, int digits) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

bool is_known(std::optional<double> value) { return value && std::isfinite(*value) && std::abs(*value) < 1e15; }

}  // namespace

std::string whole_text(int64_t value) {
  std::string text = std::to_string(value);
  const std::size_t first_digit = value < 0 ? 1 : 0;
  for (std::size_t at = text.size(); at > first_digit + 3; at -= 3) text.insert(at - 3, ",");
  return text;
}

std::string figure_text(std::optional<double> value) {
  if (!is_known(value)) return "-";
  const double size = std::abs(*value);
  if (size >= 100 || size == 0) return whole_text(std::llround(*value));
  return with_digits(*value, size >= 10 ? 1 : 2);
}

std::string percent_text(std::optional<double> share) { return is_known(share) ? figure_text(*share * 100) + " %" : "-"; }

std::string byte_text(std::optional<double> bytes) {
  if (!is_known(bytes)) return "-";
  constexpr std::array<const char*, 5> kUnits = {" B", " kB", " MB", " GB", " TB"};
  std::size_t unit = 0;
  double value = *bytes;
  for (; std::abs(value) >= 1000 && unit + 1 < kUnits.size(); ++unit) value /= 1000;
  return figure_text(value) + kUnits[unit];
}

std::string byte_rate_text(std::optional<double> bytes) { return is_known(bytes) ? byte_text(bytes) + "/s" : "-"; }

std::string seconds_text(std::optional<double> seconds) {
  if (!is_known(seconds)) return "-";
  if (*seconds >= 1 || *seconds <= 0) return figure_text(seconds) + " s";
  return *seconds >= 1e-3 ? figure_text(*seconds * 1e3) + " ms" : figure_text(*seconds * 1e6) + " us";
}

std::string age_text(double seconds) {
  struct Unit {
    const char* name;
    int64_t seconds;
  };
  constexpr std::array<Unit, 4> kUnits = {{{" d", 86400}, {" h", 3600}, {" min", 60}, {" s", 1}}};
  const auto whole = static_cast<int64_t>(is_known(seconds) && seconds > 0 ? seconds : 0);
  for (std::size_t i = 0; i + 1 < kUnits.size(); ++i) {
    if (whole < kUnits[i].seconds) continue;
    const int64_t rest = whole % kUnits[i].seconds / kUnits[i + 1].seconds;
    const std::string text = whole_text(whole / kUnits[i].seconds) + kUnits[i].name;
    return rest > 0 ? text + " " + std::to_string(rest) + kUnits[i + 1].name : text;
  }
  return std::to_string(whole) + " s";
}

}  // namespace ferry

#include "profiler/archive/moment.h"

#include <charconv>
#include <cstdio>
#include <ctime>

namespace ferry {
namespace {

constexpr int64_t kDay = 86400;
constexpr int kNoon = 12;

/// `digits` decimal digits at the front of `text`, which are taken off it.
std::optional<int> take_number(std::string_view& text, std::size_t digits) {
  int number = 0;
  if (text.size() < digits) return std::nullopt;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + digits, number);
  if (error != std::errc() || stop != text.data() + digits || number < 0 || text[0] == '-') return std::nullopt;
  text.remove_prefix(digits);
  return number;
}

bool take_char(std::string_view& text, char wanted) {
  if (text.empty() || text[0] != wanted) return false;
  text.remove_prefix(1);
  return true;
}

/// "03:12" or "03:12:05", the whole of `text`.
bool read_time(std::string_view text, std::tm& parts) {
  const std::optional<int> hour = take_number(text, 2);
  if (!hour || *hour > 23 || !take_char(text, ':')) return false;
  const std::optional<int> minute = take_number(text, 2);
  if (!minute || *minute > 59) return false;
  std::optional<int> second = 0;
  if (!text.empty()) second = take_char(text, ':') ? take_number(text, 2) : std::nullopt;
  if (!second || *second > 59 || !text.empty()) return false;
  parts.tm_hour = *hour;
  parts.tm_min = *minute;
  parts.tm_sec = *second;
  return true;
}

bool read_date(std::string_view& text, std::tm& parts) {
  const std::optional<int> year = take_number(text, 4);
  if (!year || *year < kFirstYear || *year > kLastYear || !take_char(text, '-')) return false;
  const std::optional<int> month = take_number(text, 2);
  if (!month || *month < 1 || *month > 12 || !take_char(text, '-')) return false;
  const std::optional<int> day = take_number(text, 2);
  if (!day || *day < 1 || *day > 31 || !take_char(text, 'T')) return false;
  parts.tm_year = *year - 1900;
  parts.tm_mon = *month - 1;
  parts.tm_mday = *day;
  return true;
}

/// Nothing if there is no such day.
std::optional<int64_t> seconds_of(std::tm parts) {
  const int day = parts.tm_mday;
  parts.tm_isdst = -1;
  const std::time_t seconds = std::mktime(&parts);
  if (parts.tm_mday != day || seconds < 0) return std::nullopt;
  return seconds;
}

}  // namespace

std::optional<int64_t> parse_moment(std::string_view text, int64_t now_s) {
  std::tm parts{};
  if (text.find('T') != std::string_view::npos) {
    if (!read_date(text, parts) || !read_time(text, parts)) return std::nullopt;
    return seconds_of(parts);
  }
  const std::time_t now = now_s;
  localtime_r(&now, &parts);
  if (!read_time(text, parts)) return std::nullopt;
  const std::optional<int64_t> today = seconds_of(parts);
  if (!today || *today <= now_s) return today;
  std::tm yesterday{};
  yesterday.tm_year = parts.tm_year;
  yesterday.tm_mon = parts.tm_mon;
  yesterday.tm_mday = parts.tm_mday - 1;
  yesterday.tm_hour = kNoon;
  yesterday.tm_isdst = -1;
  const std::time_t noon = std::mktime(&yesterday);  // not 24 hours ago: days have 23 or 25 where clocks are changed
  localtime_r(&noon, &parts);
  if (!read_time(text, parts)) return std::nullopt;
  return seconds_of(parts);
}

std::optional<int64_t> parse_span(std::string_view text) {
  if (text.size() < 2 || text.size() > 9) return std::nullopt;
  int64_t number = 0, unit = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size() - 1, number);
  if (error != std::errc() || stop != text.data() + text.size() - 1 || number < 1) return std::nullopt;
  switch (text.back()) {
    case 's': unit = 1; break;
    case 'm': unit = 60; break;
    case 'h': unit = 3600; break;
    case 'd': unit = kDay; break;
    default: return std::nullopt;
  }
  if (number > 366 * kDay / unit) return std::nullopt;
  return number * unit;
}

std::string moment_text(int64_t time_ns) {
  const std::time_t seconds = time_ns / 1'000'000'000;
  std::tm parts{};
  localtime_r(&seconds, &parts);
  char day[32], text[48];
  std::strftime(day, sizeof day, "%Y-%m-%d %H:%M:%S", &parts);
  std::snprintf(text, sizeof text, "%s.%03d", day, static_cast<int>(time_ns / 1'000'000 % 1000));
  return text;
}

}  // namespace ferry

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// Times of day as people write them, by the local clock.

namespace ferry {

/// Years of dates: nanoseconds since 1970 end in 2262.
inline constexpr int kFirstYear = 1970, kLastYear = 2200;

/// "03:12", "03:12:05" (the last such moment up to `now_s`), "2026-11-27T03:12" or "2026-11-27T03:12:05", in seconds since
/// 1970; nothing for any other text, and for years before kFirstYear or after kLastYear.
std::optional<int64_t> parse_moment(std::string_view text, int64_t now_s);
/// "90s", "15m", "1h", "2d" in seconds, more than none and at most 366 days; nothing for any other text.
std::optional<int64_t> parse_span(std::string_view text);

/// "2026-11-27 03:12:05.123"
std::string moment_text(int64_t time_ns);

}  // namespace ferry

#pragma once

#include <cstdint>
#include <optional>
#include <string>

// How figures are written for people: three digits that count, and a unit. "-" stands for what is not known.

namespace ferry {

std::string whole_text(int64_t value);                    // "1,234"
std::string figure_text(std::optional<double> value);     // "0.52", "41.8", "4,180"
std::string percent_text(std::optional<double> share);    // "41.8 %" of 0.418
std::string byte_text(std::optional<double> bytes);       // "12.0 MB"
std::string byte_rate_text(std::optional<double> bytes);  // "12.0 MB/s", of bytes a second
std::string seconds_text(std::optional<double> seconds);  // "3.40 ms"
std::string age_text(double seconds);                     // "2 h 5 min"

}  // namespace ferry

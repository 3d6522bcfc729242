#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// What the values of options must be: CLI11 validators whose complaints are ours. CLI11 puts the option's name in front.

namespace ferry {

/// "'x'; allowed: …".
std::string complaint(const std::string& value, const std::string& allowed);

/// The whole of `text` as a number; nothing if it is anything else or does not fit.
template <class Number>
std::optional<Number> parse_number(const std::string& text) {
  Number value{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

CLI::Validator integer_in(int64_t lowest, int64_t highest);
/// `allowed` says the range in words.
CLI::Validator number_in(double lowest, double highest, const std::string& allowed);
CLI::Validator one_of(const std::vector<std::string>& names);
/// Bytes with an optional unit, turned into a plain number. `allowed` says the range in words.
CLI::Validator size_in(int64_t lowest, int64_t highest, const std::string& allowed);

}  // namespace ferry

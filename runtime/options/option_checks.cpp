#include "runtime/options/option_checks.h"

#include <algorithm>

namespace ferry {

std::string complaint(const std::string& value, const std::string& allowed) { return "'" + value + "'; allowed: " + allowed; }

CLI::Validator integer_in(int64_t lowest, int64_t highest) {
  const std::string allowed = std::to_string(lowest) + " to " + std::to_string(highest);
  return {[=](std::string& text) {
            const std::optional<int64_t> value = parse_number<int64_t>(text);
            return value && *value >= lowest && *value <= highest ? std::string() : complaint(text, allowed);
          },
          "[" + allowed + "]"};
}

CLI::Validator number_in(double lowest, double highest, const std::string& allowed) {
  return {[=](std::string& text) {
            const std::optional<double> value = parse_number<double>(text);
            return value && *value >= lowest && *value <= highest ? std::string() : complaint(text, allowed);
          },
          "[" + allowed + "]"};
}

CLI::Validator one_of(const std::vector<std::string>& names) {
  std::string allowed;
  for (const std::string& name : names) allowed += (allowed.empty() ? "" : ", ") + name;
  return {[=](std::string& text) {
            return std::find(names.begin(), names.end(), text) != names.end() ? std::string() : complaint(text, allowed);
          },
          ""};
}

CLI::Validator size_in(int64_t lowest, int64_t highest, const std::string& allowed) {
  return {[=](std::string& text) {
            if (text.empty() || text.front() < '0' || text.front() > '9') return complaint(text, allowed);
            std::string bytes = text;
            try {
              if (!CLI::AsSizeValue(false)(bytes).empty()) return complaint(text, allowed);
            } catch (const CLI::Error&) {
              return complaint(text, allowed);
            }
            const std::optional<int64_t> value = parse_number<int64_t>(bytes);
            if (!value || *value < lowest || *value > highest) return complaint(text, allowed);
            text = bytes;
            return std::string();
          },
          "[" + allowed + "]"};
}

}  // namespace ferry

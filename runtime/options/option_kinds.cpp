#include "runtime/options/option_kinds.h"

#include <algorithm>
#include <limits>
#include <optional>

namespace ferry {
namespace {

template <class Int>
std::vector<Int> parse_list(const std::string& name, const std::string& text, Int lowest, Int highest) {
  const bool is_open = highest == std::numeric_limits<Int>::max();
  const std::string range = "from " + std::to_string(lowest) + (is_open ? "" : " to " + std::to_string(highest));
  std::vector<Int> values;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::optional<Int> value = parse_number<Int>(CLI::detail::trim_copy(text.substr(begin, end - begin)));
    if (!value || *value < lowest || *value > highest)
      throw CLI::ValidationError(name, complaint(text, "integers " + range + ", such as 1,2,3"));
    values.push_back(*value);
    begin = end + 1;
  }
  return values;
}

}  // namespace

CLI::Option* add_list(CLI::App& app, const std::string& name, std::vector<int64_t>& values, int64_t lowest, int64_t highest,
                      const char* help) {
  const auto parse = [&values, name, lowest, highest](const std::string& text) {
    values = parse_list<int64_t>(name, text, lowest, highest);
    std::vector<int64_t> sorted = values;
    std::ranges::sort(sorted);
    if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end())
      throw CLI::ValidationError(name, complaint(text, "each number once, not " + std::to_string(*twice) + " twice"));
  };
  return app.add_option_function<std::string>(name, parse, help);
}

CLI::Option* add_token_ids(CLI::App& app, const std::string& name, std::vector<TokenId>& ids, const char* help) {
  const auto parse = [&ids, name](const std::string& text) {
    ids = parse_list<TokenId>(name, text, 0, std::numeric_limits<TokenId>::max());
  };
  return app.add_option_function<std::string>(name, parse, help);
}

}  // namespace ferry

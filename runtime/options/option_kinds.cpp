#include "runtime/options/option_kinds.h"

#include <algorithm>
#include <limits>
#include <optional>

namespace ferry {
namespace {

template <class Int>
CLI::Option* add_any_list(CLI::App& app, const std::string& name, std::vector<Int>& values, Int lowest, Int highest,
                          const char* help) {
  const bool is_open = highest == std::numeric_limits<Int>::max();
  const std::string range = "from " + std::to_string(lowest) + (is_open ? "" : " to " + std::to_string(highest));
  const auto parse = [&values, name, lowest, highest, range](const std::string& text) {
    values.clear();
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      const std::optional<Int> value = parse_number<Int>(CLI::detail::trim_copy(text.substr(begin, end - begin)));
      if (!value || *value < lowest || *value > highest)
        throw CLI::ValidationError(name, complaint(text, "integers " + range + ", such as 1,2,3"));
      values.push_back(*value);
      begin = end + 1;
    }
  };
  return app.add_option_function<std::string>(name, parse, help);
}

}  // namespace

CLI::Option* add_list(CLI::App& app, const std::string& name, std::vector<int64_t>& values, int64_t lowest, int64_t highest,
                      const char* help) {
  return add_any_list<int64_t>(app, name, values, lowest, highest, help);
}

CLI::Option* add_token_ids(CLI::App& app, const std::string& name, std::vector<TokenId>& ids, const char* help) {
  return add_any_list<TokenId>(app, name, ids, 0, std::numeric_limits<TokenId>::max(), help);
}

}  // namespace ferry

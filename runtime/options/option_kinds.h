#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/types.h"
#include "runtime/options/option_checks.h"

// Options whose values are neither one number nor one text.

namespace ferry {

/// An option whose values are names of an enumeration.
template <class Enum>
CLI::Option* add_choice(CLI::App& app, const char* name, const std::vector<std::pair<std::string, Enum>>& choices,
                        std::function<void(Enum)> set, const char* help) {
  std::vector<std::string> names;
  for (const auto& [text, value] : choices) names.push_back(text);
  const auto choose = [choices, set = std::move(set)](const std::string& text) {
    for (const auto& [choice, value] : choices) {
      if (choice == text) set(value);
    }
  };
  return app.add_option_function<std::string>(name, choose, help)->check(one_of(names));
}

/// An option that is a list of different integers such as 1,2,3, each in [lowest, highest].
CLI::Option* add_list(CLI::App& app, const std::string& name, std::vector<int64_t>& values, int64_t lowest, int64_t highest,
                      const char* help);
CLI::Option* add_token_ids(CLI::App& app, const std::string& name, std::vector<TokenId>& ids, const char* help);

}  // namespace ferry

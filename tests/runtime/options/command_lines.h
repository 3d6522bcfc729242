#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/options/options.h"
#include "tests/support/expect_error.h"

// Command lines, parsed, accepted and refused.

namespace ferry::test {

inline ParseResult parse(const std::vector<std::string>& arguments) {
  std::vector<const char*> argv{"ferry"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  return parse_options(static_cast<int>(argv.size()), argv.data());
}

/// `arguments` after a valid `ferry COMMAND` line.
inline std::vector<std::string> line(const std::string& command, const std::vector<std::string>& arguments) {
  std::vector<std::string> all{command, "--model", "m"};
  if (command == "generate") all.insert(all.end(), {"--prompt", "text"});
  if (command == "dump") all.insert(all.end(), {"--token-ids", "1,2", "--out", "o"});
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

inline Options accept(const std::vector<std::string>& arguments) {
  const ParseResult result = parse(arguments);
  EXPECT_TRUE(result.options.has_value()) << result.message;
  EXPECT_EQ(result.exit_code, 0);
  return result.options.value_or(Options{});
}

inline void refuse(const std::vector<std::string>& arguments, const std::vector<std::string>& parts) {
  const ParseResult result = parse(arguments);
  EXPECT_FALSE(result.options.has_value()) << (arguments.empty() ? "" : arguments.back());
  EXPECT_EQ(result.exit_code, 2) << result.message;
  expect_one_line_with(result.message, parts);
}

}  // namespace ferry::test

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ferry {

/// A command line taken apart as a shell does it: single quotes, and backslashes outside of them.
struct ShellWords {
  std::vector<std::string> words;  // each still quoted as it was
  bool is_whole = true;            // no quote lacks its end, as in a line that was cut off
};

ShellWords split_shell_words(std::string_view line);

}  // namespace ferry

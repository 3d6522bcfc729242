#include "runtime/base/shell_words.h"

#include <utility>

namespace ferry {

ShellWords split_shell_words(std::string_view line) {
  ShellWords split;
  std::string word;
  bool is_quoted = false, is_escaped = false;
  for (const char c : line) {
    if (c == ' ' && !is_quoted && !is_escaped) {
      if (!word.empty()) split.words.push_back(std::exchange(word, ""));
      continue;
    }
    word += c;
    if (c == '\'' && !is_escaped) is_quoted = !is_quoted;
    is_escaped = c == '\\' && !is_quoted && !is_escaped;
  }
  if (!word.empty()) split.words.push_back(std::move(word));
  split.is_whole = !is_quoted && !is_escaped;
  return split;
}

}  // namespace ferry

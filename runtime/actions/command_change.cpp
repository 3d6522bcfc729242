#include "runtime/actions/command_change.h"

#include <vector>

namespace ferry {
namespace {

/// Words as a shell has them, each still quoted as it was.
std::vector<std::string> words_of(const std::string& command) {
  std::vector<std::string> words;
  std::string word;
  bool is_quoted = false;
  for (const char c : command) {
    if (c == '\'') is_quoted = !is_quoted;
    if (c == ' ' && !is_quoted) {
      if (!word.empty()) words.push_back(std::move(word));
      word.clear();
    } else {
      word += c;
    }
  }
  if (!word.empty()) words.push_back(std::move(word));
  return words;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

}  // namespace

std::optional<std::string> option_in(const std::string& command, const std::string& option) {
  const std::vector<std::string> words = words_of(command);
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == option && i + 1 < words.size()) return words[i + 1];
    if (words[i].starts_with(option + "=")) return words[i].substr(option.size() + 1);
  }
  return {};
}

std::string with_option(const std::string& command, const std::string& option, const std::string& value) {
  std::vector<std::string> words = words_of(command);
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == option && i + 1 < words.size()) {
      words[i + 1] = value;
      return joined(words);
    }
    if (words[i].starts_with(option + "=")) {
      words[i] = option + "=" + value;
      return joined(words);
    }
  }
  words.push_back(option);
  words.push_back(value);
  return joined(words);
}

std::string changed_command(const CaptureInfo& info, const std::string& option, const std::string& value) {
  if (words_of(info.command).size() < 2) return "";  // of a test, or of a program that embeds the library
  const bool changes_ranks = option == "-np";
  std::string command = changes_ranks ? info.command : with_option(info.command, option, value);
  if (const auto folder = option_in(command, "--trace")) command = with_option(command, "--trace", *folder + "-after");
  const std::string num_ranks = changes_ranks ? value : std::to_string(info.world_size);
  if (num_ranks == "1") return command;
  return "launch/mpirun.sh -np " + num_ranks + " " + command;
}

}  // namespace ferry

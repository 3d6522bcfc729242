#include "runtime/actions/command_change.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <vector>

#include "runtime/base/shell_words.h"

namespace ferry {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

/// "--combine" set to "fast": "-combine-fast", so that each change has a folder of its own.
std::string folder_ending(const std::string& option, const std::string& value) {
  return "-" + option.substr(std::min(option.find_first_not_of('-'), option.size())) + "-" + value;
}

/// Workers that join by themselves are no ranks of a launcher.
bool takes_joiners(const std::string& command) { return option_in(command, "--elastic").has_value(); }

/// A capture knows its own coordinator and the workers: a launcher starts the other coordinators as well.
std::string with_other_coordinators(const std::string& command, const std::string& num_ranks) {
  const std::string coordinators = option_in(command, "--coordinators").value_or("1");
  int own = 0, all = 0;
  const auto read = [](const std::string& text, int& number) {
    return std::from_chars(text.data(), text.data() + text.size(), number).ec == std::errc();
  };
  if (!read(num_ranks, own) || !read(coordinators, all) || all < 2) return num_ranks;
  return std::to_string(own + all - 1);
}

}  // namespace

std::optional<std::string> option_in(const std::string& command, const std::string& option) {
  const std::vector<std::string> words = split_shell_words(command).words;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == option && i + 1 < words.size()) return words[i + 1];
    if (words[i].starts_with(option + "=")) return words[i].substr(option.size() + 1);
  }
  return {};
}

std::string with_option(const std::string& command, const std::string& option, const std::string& value) {
  std::vector<std::string> words = split_shell_words(command).words;
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

std::string without_option(const std::string& command, const std::string& option) {
  std::vector<std::string> words = split_shell_words(command).words;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool is_apart = words[i] == option && i + 1 < words.size();
    if (!is_apart && !words[i].starts_with(option + "=")) continue;
    const auto at = words.begin() + static_cast<std::ptrdiff_t>(i);
    words.erase(at, at + (is_apart ? 2 : 1));
    break;
  }
  return joined(words);
}

std::string changed_command(const CaptureInfo& info, const std::string& option, const std::string& value) {
  const ShellWords split = split_shell_words(info.command);
  if (split.words.size() < 2) return "";  // of a test, or of a program that embeds the library
  if (!split.is_whole || info.command.size() + 1 >= kMostCommandBytes) return "";  // cut off
  const bool changes_ranks = option == "-np";
  std::string command = changes_ranks ? info.command : with_option(info.command, option, value);
  if (const auto folder = option_in(command, "--trace"))
    command = with_option(command, "--trace", *folder + folder_ending(option, value));
  if (takes_joiners(command)) {
    if (!changes_ranks) return command;
    return value == "1" ? without_option(without_option(command, "--elastic"), "--join-key") : "";
  }
  if (changes_ranks && value == "1") return without_option(command, "--coordinators");
  const std::string ranks = changes_ranks ? value : std::to_string(info.world_size);
  const std::string num_ranks = with_other_coordinators(command, ranks);
  if (num_ranks == "1") return command;
  return "launch/mpirun.sh -np " + num_ranks + " " + command;
}

}  // namespace ferry

#include "launch/verify/option_changes.h"

#include <algorithm>
#include <array>
#include <optional>

#include "runtime/base/shell_words.h"

namespace ferry {
namespace {

/// A negative number is a value.
bool is_option(std::string_view word) {
  return word.size() >= 2 && word[0] == '-' && (word[1] == '-' || (word[1] >= 'a' && word[1] <= 'z'));
}

template <std::size_t N>
bool is_one_of(std::string_view option, const std::array<std::string_view, N>& options) {
  return std::find(options.begin(), options.end(), option) != options.end();
}

std::map<std::string, std::string> options_of(const CaptureInfo& info) {
  std::map<std::string, std::string> options = read_command_line(info.command).options;
  options["-np"] = std::to_string(info.world_size);
  std::erase_if(options, [](const auto& option) { return is_incidental_option(option.first); });
  return options;
}

/// Of an option that one run was given and the other was not: what the other did by itself, where its capture says that.
std::optional<std::string> value_of(const std::string& option, const std::map<std::string, std::string>& given,
                                    const CaptureInfo& info) {
  if (const auto found = given.find(option); found != given.end()) return found->second;
  if (const auto found = info.settings.find(option); found != info.settings.end()) return found->second;
  return std::nullopt;
}

}  // namespace

CommandLine read_command_line(std::string_view line) {
  CommandLine read;
  std::string* value = nullptr;
  const std::vector<std::string> words = split_shell_words(line).words;
  for (std::size_t i = 1; i < words.size(); ++i) {  // the first is the program
    const std::string_view word = words[i];
    if (is_option(word)) {
      const std::size_t equals = word.find('=');
      value = &read.options[std::string(word.substr(0, equals))];
      *value = equals == std::string_view::npos ? "" : std::string(word.substr(equals + 1));
    } else if (value != nullptr) {
      *value += (value->empty() ? "" : " ") + std::string(word);
    } else if (read.command.empty()) {
      read.command = word;
    }
  }
  return read;
}

bool is_incidental_option(std::string_view option) {
  static constexpr std::array<std::string_view, 12> kIncidental = {
      "--trace", "--trace-dir", "--trace-routing", "--grpc",    "--http", "--json",
      "--peers", "--elastic",   "--join-key",      "--verbose", "-r",     "--otlp-traces-endpoint"};
  return is_one_of(option, kIncidental);
}

bool is_workload_option(std::string_view option) {
  static constexpr std::array<std::string_view, 7> kWorkload = {"-p",       "-n",       "-b", "-d", "--prompt-file",
                                                                "--prompt", "--routing"};
  return is_one_of(option, kWorkload);
}

std::vector<OptionChange> find_option_changes(const CaptureInfo& before, const CaptureInfo& after) {
  const std::map<std::string, std::string> first = options_of(before), second = options_of(after);
  std::map<std::string, std::string> given = first;
  given.insert(second.begin(), second.end());
  std::vector<OptionChange> changes;
  for (const auto& [option, some_value] : given) {
    const std::optional<std::string> a = value_of(option, first, before), b = value_of(option, second, after);
    if (a != b) changes.push_back({.option = option, .before = a.value_or(""), .after = b.value_or("")});
  }
  return changes;
}

}  // namespace ferry

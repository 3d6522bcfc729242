#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <vector>

namespace ferry {

/// Words that mean the same with many options. "off" is for what can be absent, and "auto" for what is chosen or measured where
/// nothing is said. So `--elastic off` is as no --elastic, `--rebalance off` as `--rebalance 0`, and `--dtype auto` as no
/// --dtype.
struct OptionWord {
  const char* option;
  const char* word;
  const char* value;  // that it stands for; nullptr: the option is left out
};

/// Returns the words of all commands.
std::span<const OptionWord> option_words();

/// The arguments after the program's name, with these words replaced by what they stand for. Options that the command does not
/// have stay as they are.
std::vector<std::string> replace_option_words(const CLI::App& app, std::span<const char* const> arguments);

}  // namespace ferry

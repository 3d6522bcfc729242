#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/capture.h"

namespace ferry {

/// What two runs were told differently; an empty value: it was not given, or is a flag.
struct OptionChange {
  std::string option;  // "--token-budget"; "-np" for the number of ranks
  std::string before, after;
};

/// The command of a command line ("bench"), and its options with their values: "--x 1", "--x=1", "-p 64,200", flags with an
/// empty value. What stands between two options is the value of the first, with one space between words.
struct CommandLine {
  std::string command;
  std::map<std::string, std::string> options;
};
CommandLine read_command_line(std::string_view line);

/// Options that say where a run writes and listens, not what it does.
bool is_incidental_option(std::string_view option);
/// Options of `ferry bench` and `ferry generate` that say what is to be computed.
bool is_workload_option(std::string_view option);

/// By option. The number of ranks counts as -np, incidental options are left out.
std::vector<OptionChange> find_option_changes(const CaptureInfo& before, const CaptureInfo& after);

}  // namespace ferry

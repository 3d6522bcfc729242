#pragma once

#include <optional>
#include <string>

#include "profiler/capture.h"

namespace ferry {

/// The value that a command line gives an option, as `--option value` or `--option=value`; nothing if it does not.
std::optional<std::string> option_in(const std::string& command, const std::string& option);

/// The line with the option set, in its place or behind the rest.
std::string with_option(const std::string& command, const std::string& option, const std::string& value);

/// The line without the option and its value.
std::string without_option(const std::string& command, const std::string& option);

/// The whole line that runs the captured command once more with one option changed: under mpirun where it was, with `num_ranks`
/// ranks, and with another folder for its capture. "-np" is the option that changes the ranks. Where workers join by themselves
/// no launcher knows them: they join that line, too, or with one rank none may. Empty where no line does it: for a capture that
/// does not know its whole command, and where one joining worker less is wanted.
std::string changed_command(const CaptureInfo& info, const std::string& option, const std::string& value);

}  // namespace ferry

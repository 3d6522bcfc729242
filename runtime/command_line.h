#pragma once

#include <string>

namespace ferry {

/// How this process was started: its arguments as a shell takes them, at most kMostCommandBytes.
std::string command_line();

}  // namespace ferry

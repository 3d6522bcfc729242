#pragma once

#include <string>

namespace ferry {

/// How this process was started: its arguments with blanks between, at most 4096 bytes.
std::string command_line();

}  // namespace ferry

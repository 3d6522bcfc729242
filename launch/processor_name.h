#pragma once

#include <string>

namespace ferry {

/// What the first processor calls itself, as /proc/cpuinfo has it; "CPU" if that does not say.
std::string processor_name();

}  // namespace ferry

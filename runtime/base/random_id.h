#pragma once

#include <string>

namespace ferry {

/// 32 hexadecimal digits from the operating system's random numbers: 128 bits that nobody can guess and that do not come twice.
/// Any thread may call it.
std::string random_id();

}  // namespace ferry

#pragma once

#include <cstdint>
#include <string>

namespace ferry {

/// 32 hexadecimal digits from the operating system's random numbers: 128 bits that nobody can guess and that do not come twice.
/// Any thread may call it.
std::string random_id();

/// 64 bits of the same kind, for requests that name no seed.
uint64_t random_seed();

}  // namespace ferry

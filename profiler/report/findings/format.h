#pragma once

#include <cstdint>
#include <string>

namespace ferry {

/// printf into a string of at most 639 bytes.
[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...);

/// As %lld takes it.
inline long long whole(int64_t value) { return value; }

}  // namespace ferry

#pragma once

#include <string>

namespace ferry {

/// printf into a string of at most 639 bytes.
[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...);

}  // namespace ferry

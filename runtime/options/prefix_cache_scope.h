#pragma once

#include <cstdint>

namespace ferry {

/// Tells which callers find the cached prefix of a request: all of them, or only those with its API key.
enum class PrefixCacheScope : uint8_t { kShared, kKey };

}  // namespace ferry

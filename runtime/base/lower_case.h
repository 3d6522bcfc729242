#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace ferry {

/// ASCII letters in lower case, all other bytes as they are.
inline std::string lower_case(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return result;
}

}  // namespace ferry

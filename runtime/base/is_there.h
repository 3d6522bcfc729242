#pragma once

#include <filesystem>
#include <system_error>

namespace ferry {

/// Returns whether there is something at `path`, also if it cannot be looked at, as a loop of symbolic links cannot: opening it
/// then says why. Never throws.
inline bool is_there(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error) || error;
}

}  // namespace ferry

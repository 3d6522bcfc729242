#pragma once

#include <filesystem>

namespace ferry {

/// Where programs of a user keep what they could make again, by the XDG base directory specification: "ferry" in
/// $XDG_CACHE_HOME, or in $HOME/.cache. The arguments are the variables' values, null if they are not set. Empty where neither
/// is an absolute path. It need not be there yet.
std::filesystem::path cache_folder(const char* xdg_cache_home, const char* home);

}  // namespace ferry

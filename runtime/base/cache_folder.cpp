#include "runtime/base/cache_folder.h"

namespace ferry {

std::filesystem::path cache_folder(const char* xdg_cache_home, const char* home) {
  const std::filesystem::path xdg = xdg_cache_home != nullptr ? xdg_cache_home : "", user = home != nullptr ? home : "";
  if (xdg.is_absolute()) return xdg / "ferry";
  return user.is_absolute() ? user / ".cache" / "ferry" : std::filesystem::path();
}

}  // namespace ferry

#include "runtime/base/runtime_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <system_error>

namespace ferry {
namespace {

bool is_own(const std::filesystem::path& folder) {
  struct stat found {};
  return stat(folder.c_str(), &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == geteuid() &&
         (found.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

}  // namespace

std::filesystem::path runtime_folder(const char* xdg_runtime_dir) {
  const std::filesystem::path xdg = xdg_runtime_dir != nullptr ? xdg_runtime_dir : "";
  if (xdg.is_absolute() && is_own(xdg)) return xdg / "ferry";
  std::error_code error;
  const std::filesystem::path temporary = std::filesystem::temp_directory_path(error);
  return (error ? std::filesystem::path("/tmp") : temporary) / ("ferry-" + std::to_string(geteuid()));
}

}  // namespace ferry

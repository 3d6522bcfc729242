#include "profiler/write_file.h"

#include <cerrno>
#include <fstream>
#include <system_error>

#include "runtime/base/error.h"

namespace ferry {

void write_file(const std::filesystem::path& path, const std::function<void(std::ostream&)>& write) {
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  if (file) write(file);
  file.close();
  if (file) return;
  const std::string reason = std::error_code(errno, std::generic_category()).message();
  throw Error(ErrorCode::kUnavailable, "cannot write " + path.string() + ": " + reason);
}

}  // namespace ferry

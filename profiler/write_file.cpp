#include "profiler/write_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ext/stdio_filebuf.h>
#include <fstream>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/base/file_descriptor.h"

namespace ferry {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& path, int error) {
  throw Error(ErrorCode::kUnavailable, "cannot write " + path.string() + ": " + std::generic_category().message(error));
}

}  // namespace

FileDescriptor make_file_anew(const fs::path& path) {
  const fs::path parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
  const FileDescriptor folder(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0) refuse(path, errno);
  const fs::path name = path.filename();
  struct stat status {};
  if (::fstatat(folder.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) {
    if (!S_ISREG(status.st_mode))
      throw Error(ErrorCode::kFailedPrecondition, path.string() + " is no regular file; allowed: one, or none");
    if (::unlinkat(folder.get(), name.c_str(), 0) != 0) refuse(path, errno);
  }
  FileDescriptor file(::openat(folder.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (file.get() < 0) refuse(path, errno);
  return file;
}

void write_file(const fs::path& path, const std::function<void(std::ostream&)>& write) {
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  if (file) write(file);
  file.close();
  if (!file) refuse(path, errno);
}

void write_file_anew(const fs::path& path, const std::function<void(std::ostream&)>& write) {
  FileDescriptor file = make_file_anew(path);
  __gnu_cxx::stdio_filebuf<char> buffer(file.release(), std::ios::out | std::ios::binary);
  std::ostream stream(&buffer);
  errno = 0;
  write(stream);
  stream.flush();
  if (buffer.close() == nullptr || !stream) refuse(path, errno);
}

std::optional<fs::path> find_link_in(const fs::path& folder) {
  std::error_code code;
  for (fs::recursive_directory_iterator entry(folder, code), end; !code && entry != end; entry.increment(code)) {
    if (entry->is_symlink()) return entry->path();
  }
  if (code && code != std::errc::no_such_file_or_directory)
    throw Error(ErrorCode::kFailedPrecondition, folder.string() + " cannot be looked through: " + code.message());
  return std::nullopt;
}

void refuse_links_in(const fs::path& folder) {
  if (const std::optional<fs::path> link = find_link_in(folder))
    throw Error(ErrorCode::kFailedPrecondition, link->string() + " is a symbolic link; allowed: none in a capture");
}

}  // namespace ferry

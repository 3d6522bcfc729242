#include "runtime/base/text_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/base/file_descriptor.h"

namespace ferry {
namespace {

[[noreturn]] void throw_system(ErrorCode code, const char* what, const std::filesystem::path& path) {
  throw Error(code, what + path.string() + ": " + std::strerror(errno));
}

}  // namespace

std::string read_text_file(const std::filesystem::path& path, int64_t max_bytes) {
  // O_NONBLOCK: opening a FIFO must be an error, not a hang.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) throw_system(ErrorCode::kNotFound, "cannot open ", path);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) throw_system(ErrorCode::kFailedPrecondition, "cannot read ", path);
  if (!S_ISREG(status.st_mode)) throw_invalid(path.string() + ": not a regular file");
  if (status.st_size > max_bytes) {
    throw_invalid(path.string() + ": " + std::to_string(status.st_size) + " bytes; allowed: at most " +
                  std::to_string(max_bytes));
  }
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t num_read = 0;
  while (num_read < text.size()) {
    const ssize_t piece = ::read(file.get(), text.data() + num_read, text.size() - num_read);
    if (piece < 0 && errno == EINTR) continue;
    if (piece < 0) throw_system(ErrorCode::kFailedPrecondition, "cannot read ", path);
    if (piece == 0) break;  // somebody shortened the file meanwhile
    num_read += static_cast<std::size_t>(piece);
  }
  text.resize(num_read);
  return text;
}

}  // namespace ferry

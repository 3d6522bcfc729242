#include "runtime/base/pending_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/base/error.h"

namespace ferry {

PendingFile::PendingFile(const std::filesystem::path& path)
    : path_(path), temporary_(path.string() + ".tmp." + std::to_string(::getpid())) {
  // Renaming onto a device or a socket would replace it, for root even /dev/null.
  if (std::filesystem::exists(path_) && !std::filesystem::is_regular_file(path_)) {
    throw Error(ErrorCode::kFailedPrecondition, "cannot write " + path_.string() + ": it is there and no regular file");
  }
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0) fail();
}

PendingFile::~PendingFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!committed_) ::unlink(temporary_.c_str());
}

void PendingFile::write(std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t written = ::write(fd_, data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail();
    data = data.subspan(static_cast<std::size_t>(written));
  }
}

void PendingFile::commit() {
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) fail();
  committed_ = true;
}

void PendingFile::fail() const {
  const int error = errno;
  const bool is_full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  throw Error(is_full ? ErrorCode::kResourceExhausted : ErrorCode::kFailedPrecondition,
              "cannot write " + path_.string() + ": " + std::strerror(error));
}

}  // namespace ferry

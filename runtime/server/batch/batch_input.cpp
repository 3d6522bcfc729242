#include "runtime/server/batch/batch_input.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "runtime/base/error.h"

namespace ferry::batch {
namespace {

constexpr std::size_t kPieceBytes = 1 << 16;  // that are read at a time

/// Does not wait for somebody to write to a FIFO. Reading a regular file is the same without O_NONBLOCK.
int open_input(const std::string& name) {
  const int fd = ::open(name.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) throw Error(ErrorCode::kNotFound, name + " cannot be read: " + std::generic_category().message(errno));
  return fd;
}

}  // namespace

BatchInput::BatchInput(const std::filesystem::path& path, int64_t max_line_bytes)
    : name_(path.string()),
      max_line_bytes_(static_cast<std::size_t>(max_line_bytes)),
      file_(open_input(name_)),
      buffer_(kPieceBytes) {
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0 || !S_ISREG(status.st_mode))
    throw_invalid(name_ + " is not a regular file; allowed: a file of requests, one a line");
  bytes_ = status.st_size;
}

bool BatchInput::fill() {
  ssize_t count = 0;
  do {
    count = ::read(file_.get(), buffer_.data(), buffer_.size());
  } while (count < 0 && errno == EINTR);
  if (count < 0) throw Error(ErrorCode::kInternal, name_ + " cannot be read: " + std::generic_category().message(errno));
  begin_ = 0;
  end_ = static_cast<std::size_t>(count);
  return count > 0;
}

std::optional<BatchInput::Line> BatchInput::next() {
  Line line;
  const auto is_blank = [&] { return !line.is_too_long && line.text.find_first_not_of(" \t\r") == std::string::npos; };
  while (begin_ < end_ || fill()) {
    if (!take_piece(line)) continue;
    if (!is_blank()) return line;
    line = {};
  }
  if (is_blank()) return std::nullopt;
  line.number = ++num_lines_;  // the last one, which has no end
  line.end = num_read_;
  return line;
}

/// Adds to the line what the buffer has of it; true at the line's end.
bool BatchInput::take_piece(Line& line) {
  const char* const first = buffer_.data() + begin_;
  const char* const last = buffer_.data() + end_;
  const char* const stop = std::find(first, last, '\n');
  line.is_too_long = line.is_too_long || line.text.size() + static_cast<std::size_t>(stop - first) > max_line_bytes_;
  if (line.is_too_long) {
    line.text.clear();
  } else {
    line.text.append(first, stop);
  }
  const std::size_t num_taken = static_cast<std::size_t>(stop - first) + (stop == last ? 0 : 1);
  begin_ += num_taken;
  num_read_ += static_cast<int64_t>(num_taken);
  if (stop == last) return false;
  line.number = ++num_lines_;
  line.end = num_read_;
  return true;
}

}  // namespace ferry::batch

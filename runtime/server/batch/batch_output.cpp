#include "runtime/server/batch/batch_output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/server/batch/batch_line.h"

namespace ferry::batch {
namespace {

constexpr std::size_t kReadBytes = 1 << 16;        // at a time
constexpr std::size_t kForeignBytesMax = 1 << 20;  // of a line that does not begin as ours do

std::string system_reason() { return std::generic_category().message(errno); }

int open_output(const std::string& name) {
  const int fd = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) throw Error(ErrorCode::kNotFound, name + " cannot be written: " + system_reason());
  return fd;
}

}  // namespace

BatchOutput::BatchOutput(const std::filesystem::path& path, int input_fd) : name_(path.string()), file_(open_output(name_)) {
  struct stat output {
  }, input{};
  if (::fstat(file_.get(), &output) != 0 || !S_ISREG(output.st_mode))
    throw_invalid(name_ + " is not a regular file; allowed: a file for the answers");
  if (::fstat(input_fd, &input) == 0 && input.st_dev == output.st_dev && input.st_ino == output.st_ino)
    throw_invalid(name_ + " is the file of the requests; allowed: another one for the answers");
  if (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0)
    throw Error(ErrorCode::kFailedPrecondition, name_ + " is being written by another process");
  read_answers();
}

/// All lines, a piece of the file at a time.
void BatchOutput::read_answers() {
  std::vector<char> piece(kReadBytes);
  std::string line;
  while (true) {
    const ssize_t count = ::read(file_.get(), piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Error(ErrorCode::kInternal, name_ + " cannot be read: " + system_reason());
    if (count == 0) break;
    for (auto first = piece.begin(), last = piece.begin() + count; first != last;) {
      const auto stop = std::find(first, last, '\n');
      line.append(first, stop);
      if (line.size() > kForeignBytesMax) check_begin(line);  // before there is more of what may have no end
      first = stop == last ? last : stop + 1;
      if (stop == last) continue;
      note_done(line);
      bytes_ += std::ssize(line) + 1;
      line.clear();
    }
  }
  if (line.empty()) return;
  check_begin(line);
  num_cut_bytes_ = std::ssize(line);
  if (::ftruncate(file_.get(), bytes_) != 0) throw Error(ErrorCode::kInternal, name_ + " cannot be cut: " + system_reason());
}

void BatchOutput::check_begin(std::string_view line) const {
  if (may_begin_output_line(line)) return;
  throw_invalid(name_ + " has a line that ferry batch did not write, number " + std::to_string(num_found_ + 1) +
                "; allowed: a file of its answers, or none");
}

void BatchOutput::note_done(std::string_view line) {
  ++num_found_;
  BatchDone done = read_output_line(line, name_ + " line " + std::to_string(num_found_));
  num_failed_ += done.is_failed ? 1 : 0;
  if (done.custom_id.empty()) {
    lines_.insert(done.line);
  } else {
    ids_.insert(std::move(done.custom_id));
  }
}

void BatchOutput::add(std::string line) {
  line += '\n';
  for (std::size_t num_written = 0; num_written < line.size();) {
    const auto at = static_cast<off_t>(bytes_ + static_cast<int64_t>(num_written));
    const ssize_t count = ::pwrite(file_.get(), line.data() + num_written, line.size() - num_written, at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const std::string reason = system_reason();
      const bool is_cut = ::ftruncate(file_.get(), bytes_) == 0;
      throw Error(ErrorCode::kResourceExhausted,
                  name_ + " cannot be written: " + reason + (is_cut ? "" : "; its last line has no end"));
    }
    num_written += static_cast<std::size_t>(count);
  }
  bytes_ += std::ssize(line);
}

void BatchOutput::sync() {
  if (::fdatasync(file_.get()) != 0) throw Error(ErrorCode::kInternal, name_ + " cannot be saved: " + system_reason());
}

}  // namespace ferry::batch

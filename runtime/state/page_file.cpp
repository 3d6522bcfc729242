#include "runtime/state/page_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "runtime/base/available_memory.h"
#include "runtime/base/check.h"
#include "runtime/base/content_hash.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

/// Seeded by the page, so that bytes in another one's place are not its own. Never 0.
uint64_t page_checksum(const std::byte* bytes, int64_t size, int32_t page) {
  const uint64_t sum = content_hash({bytes, static_cast<std::size_t>(size)}, static_cast<uint64_t>(page));
  return sum == 0 ? 1 : sum;
}

[[noreturn]] void throw_no_file(const std::filesystem::path& folder, const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument, "'" + folder.string() + "': " + why);
}

/// A descriptor of a file in `folder` that has no name (any more).
FileDescriptor make_nameless(const std::filesystem::path& folder) {
  FileDescriptor file(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file.get() >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return file;
  std::string name = (folder / "ferry-prefix-cache-XXXXXX").string();  // a file system without nameless files
  FileDescriptor named(::mkostemp(name.data(), O_CLOEXEC));
  if (named.get() >= 0) ::unlink(name.c_str());
  return named;
}

}  // namespace

FileDescriptor open_private_file(const std::filesystem::path& folder, int64_t num_bytes) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) throw_no_file(folder, "allowed: a folder that is there");
  rlimit limit{};  // a process that exceeds it is ended
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < static_cast<rlim_t>(num_bytes))
    throw_no_file(folder, "a file of " + size_that_holds(num_bytes) + " is larger than this process may make (ulimit -f)");
  FileDescriptor file = make_nameless(folder);
  if (file.get() < 0) throw_no_file(folder, "no file can be made there: " + std::string(std::strerror(errno)));
  if (::fallocate(file.get(), 0, 0, num_bytes) == 0) return file;
  const int why = errno;
  struct statvfs room {};
  const bool is_known = ::fstatvfs(file.get(), &room) == 0;
  const int64_t num_free = is_known ? static_cast<int64_t>(room.f_bavail) * static_cast<int64_t>(room.f_frsize) : 0;
  if (why == EOPNOTSUPP && num_free >= num_bytes && ::ftruncate(file.get(), num_bytes) == 0) return file;
  const std::string has = is_known ? ", its file system has " + size_text(num_free) + " free" : "";
  throw_no_file(folder, "there is no room for a file of " + size_that_holds(num_bytes) + has + " (" +
                            std::strerror(why == EOPNOTSUPP ? ENOSPC : why) + ")");
}

PageFile::PageFile(FileDescriptor file, int64_t num_pages, int64_t page_bytes)
    : file_(std::move(file)), page_bytes_(page_bytes), checksums_(static_cast<std::size_t>(num_pages)) {
  FERRY_CHECK_GE(page_bytes, 1);
  thread_ = std::thread([this] { run(); });
}

PageFile::~PageFile() {
  {
    const std::scoped_lock lock(mutex_);
    stops_ = true;
  }
  has_job_.notify_all();
  thread_.join();
}

void PageFile::add(Job job) {
  FERRY_CHECK_LE(job.num_bytes, static_cast<int64_t>(job.bytes.size()));
  FERRY_CHECK_LE(job.num_bytes, std::ssize(job.pages) * page_bytes_);
  {
    const std::scoped_lock lock(mutex_);
    (job.is_write ? num_pending_writes_ : num_pending_reads_) += job.num_bytes;
    jobs_.push_back(std::move(job));
  }
  has_job_.notify_one();
}

int64_t PageFile::num_pending_bytes(bool of_writes) const {
  const std::scoped_lock lock(mutex_);
  return of_writes ? num_pending_writes_ : num_pending_reads_;
}

std::vector<PageFile::Job> PageFile::take_done() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(done_, {});
}

void PageFile::wait(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  has_done_.wait_for(lock, timeout, [this] { return !done_.empty(); });
}

void PageFile::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    has_job_.wait(lock, [this] { return stops_ || !jobs_.empty(); });
    if (stops_) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    do_job(job);
    lock.lock();
    (job.is_write ? num_pending_writes_ : num_pending_reads_) -= job.num_bytes;
    done_.push_back(std::move(job));
    has_done_.notify_one();
  }
}

void PageFile::do_job(Job& job) {
  const auto begin = std::chrono::steady_clock::now();
  job.is_write ? write_pages(job) : read_pages(job);
  job.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Where a page's bytes are, and how many.
std::byte* PageFile::page_of(Job& job, std::size_t idx, int64_t& size) const {
  const int64_t offset = std::min(static_cast<int64_t>(idx) * page_bytes_, job.num_bytes);
  size = std::min(page_bytes_, job.num_bytes - offset);
  return job.bytes.address().host() + offset;
}

/// Moves a page's bytes by calls of `move`(bytes, size, offset in the file), each of which may do a part.
template <class Move>
bool PageFile::move_page(Job& job, std::size_t idx, Move move) {
  int64_t size = 0;
  std::byte* bytes = page_of(job, idx, size);
  const int64_t place = job.pages[idx] * page_bytes_;
  for (int64_t done = 0; done < size;) {
    const ssize_t moved = move(bytes + done, static_cast<std::size_t>(size - done), place + done);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) {
      job.outcome = Outcome::kFailed;
      job.error = moved < 0 ? errno : EIO;
      return false;
    }
    done += moved;
  }
  return true;
}

/// Pages of which not all is written hold nothing.
void PageFile::write_pages(Job& job) {
  for (const int32_t page : job.pages) checksums_.at(static_cast<std::size_t>(page)) = 0;
  if (has_failed_) {
    job.outcome = Outcome::kAbandoned;
    return;
  }
  for (std::size_t i = 0; i < job.pages.size(); ++i) {
    const bool is_written = move_page(job, i, [this](const std::byte* bytes, std::size_t size, int64_t place) {
      return ::pwrite(file_.get(), bytes, size, place);
    });
    if (!is_written) {
      has_failed_ = true;
      return;
    }
    int64_t size = 0;
    const std::byte* bytes = page_of(job, i, size);
    checksums_[static_cast<std::size_t>(job.pages[i])] = page_checksum(bytes, size, job.pages[i]);
  }
}

void PageFile::read_pages(Job& job) {
  for (std::size_t i = 0; i < job.pages.size(); ++i) {
    const bool is_read = move_page(
        job, i, [this](std::byte* bytes, std::size_t size, int64_t place) { return ::pread(file_.get(), bytes, size, place); });
    if (!is_read) return;
    int64_t size = 0;
    const std::byte* bytes = page_of(job, i, size);
    if (checksums_.at(static_cast<std::size_t>(job.pages[i])) == page_checksum(bytes, size, job.pages[i])) continue;
    job.outcome = Outcome::kUnlike;
    return;
  }
}

}  // namespace ferry

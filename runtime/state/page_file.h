#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kernels/memory.h"
#include "runtime/base/file_descriptor.h"

namespace ferry {

/// Makes a file of `num_bytes` in `folder` that nobody else can open: it has no name, and is gone with its last descriptor.
/// Its blocks are allocated at once, where the file system can do that. Throws Error that names folder and bytes.
FileDescriptor open_private_file(const std::filesystem::path& folder, int64_t num_bytes);

/// Bytes in pages of a file, written and read in order by a thread of its own. What is read is what was written last to these
/// pages, or the job fails: each page has a checksum (XXH3), in memory.
///
/// One thread hands jobs in and takes them out; it never waits for the file unless it asks to.
class PageFile {
 public:
  enum class Outcome : uint8_t {
    kDone,
    kFailed,     // the system says why (error)
    kUnlike,     // what was read is not what was written
    kAbandoned,  // a write behind one that failed
  };
  /// Bytes that lie on the host, and where they are in the file.
  struct Job {
    bool is_write = false;
    uint64_t tag = 0;  // the caller's
    std::vector<int32_t> pages;
    Storage bytes;          // at least num_bytes; handed back when it is done
    int64_t num_bytes = 0;  // of all pages, the last of which may be used in part, or not at all
    Outcome outcome = Outcome::kDone;
    int error = 0;       // errno of kFailed
    double seconds = 0;  // that it took
  };

  /// Takes over `file`, of num_pages * page_bytes.
  PageFile(FileDescriptor file, int64_t num_pages, int64_t page_bytes);
  /// What is not done by then is not done.
  ~PageFile();
  PageFile(const PageFile&) = delete;
  PageFile& operator=(const PageFile&) = delete;

  void add(Job job);
  /// Bytes of the writes, or of the reads, that were handed in and are not done.
  int64_t num_pending_bytes(bool of_writes) const;
  /// What is done, in order.
  std::vector<Job> take_done();
  /// Until something is done that was not taken, or time is up.
  void wait(std::chrono::milliseconds timeout);

 private:
  void run();
  void do_job(Job& job);
  void write_pages(Job& job);
  void read_pages(Job& job);
  template <class Move>
  bool move_page(Job& job, std::size_t idx, Move move);
  std::byte* page_of(Job& job, std::size_t idx, int64_t& size) const;

  const FileDescriptor file_;
  const int64_t page_bytes_;

  mutable std::mutex mutex_;  // guards all up to the thread
  std::condition_variable has_job_, has_done_;
  std::deque<Job> jobs_;
  std::vector<Job> done_;
  int64_t num_pending_writes_ = 0, num_pending_reads_ = 0;  // bytes
  bool stops_ = false;

  // Of the thread alone:
  std::vector<uint64_t> checksums_;  // [num_pages] of what was written last; 0: of nothing
  bool has_failed_ = false;          // a write
  std::thread thread_;
};

}  // namespace ferry

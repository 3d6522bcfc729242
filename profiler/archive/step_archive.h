#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "profiler/archive/segment.h"
#include "profiler/archive/step_history.h"
#include "runtime/base/file_descriptor.h"

// The archive of a server's steps: a folder of segments, of bounded size.
//
//   DIR/<time>-<step>-<why>.ferryseg   segments, written under another name and then renamed
//   DIR/run-<time>-<number>.json       what segments of one run of a server share
//   DIR/steps-<day>.json               how long all steps took (StepHistory)
//   DIR/index.jsonl                    a line a segment; what it lacks is read from the segments themselves
//   DIR/lock                           held while a server writes

namespace ferry {

/// What is kept, by time. Whoever reads needs no lock: segments may go meanwhile.
std::vector<SegmentEntry> read_archive(const std::filesystem::path& folder);

/// Whether something of an archive is there: its index, a segment or a day of lengths.
bool holds_archive(const std::filesystem::path& folder);

/// The one writer of an archive. One thread at a time.
class StepArchive {
 public:
  /// Makes the folder, or goes on with what is there. Throws Error{kFailedPrecondition} in one line if another server writes to
  /// it, or it cannot be used. `now_ns`: since 1970, as everywhere here. `max_bytes` bounds all files of the archive: over it
  /// those go first that cannot be read, oldest first, then steps (choose_to_drop()).
  StepArchive(std::filesystem::path folder, int64_t max_bytes, int64_t now_ns);

  /// Adds a kept step, if it is not there for the same reason, and drops what has to go for it. Throws Error as PendingFile
  /// does, and {kResourceExhausted} for a step of more than a quarter of the archive; then nothing was added.
  void add(const KeptStep& kept, int64_t now_ns);

  const std::filesystem::path& folder() const { return folder_; }
  const std::vector<SegmentEntry>& entries() const { return entries_; }  // by time
  int64_t num_bytes() const { return num_bytes_; }                       // of all segments that can be read

 private:
  /// A segment that is damaged, or of a later version.
  struct UnreadableFile {
    std::string file;
    int64_t bytes = 0;
  };
  using RunKey = std::tuple<uint32_t, int32_t, std::vector<int32_t>>;  // what changes of a run: epoch, ranks, holders

  void name_run(const CaptureInfo& info);
  /// For segments: what the other files leave of the bound, but half of it at least.
  int64_t room() const { return std::max(max_bytes_ - other_bytes_, max_bytes_ / 2); }
  void find_other_files();
  void drop_unreadable();
  void thin_out(int64_t now_ns);
  void drop_unused_runs() const;
  void write_index();
  void append_to_index(const SegmentEntry& entry);

  const std::filesystem::path folder_;
  const int64_t max_bytes_;
  const int64_t begun_ns_;
  FileDescriptor lock_;
  std::vector<SegmentEntry> entries_;
  int64_t num_bytes_ = 0;
  std::vector<UnreadableFile> unreadable_;  // oldest first
  int64_t unreadable_bytes_ = 0;            // with those that cannot be opened, which stay
  int64_t other_bytes_ = 0;                 // of the index, runs and days
  std::string run_;                         // name of its file; empty: none yet
  RunKey run_key_;
  int num_runs_ = 0;
  std::size_t num_lines_ = 0;  // of the index
};

}  // namespace ferry

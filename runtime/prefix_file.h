#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "runtime/schedule/scheduler.h"
#include "runtime/state/kv_cache.h"
#include "runtime/state/page_file.h"
#include "runtime/state/pending_copies.h"
#include "runtime/state/snapshot_space.h"

namespace ferry {

/// The file behind the prefix cache: what the scheduler has no more room for goes there, and comes back, to the bit, for
/// prompts that begin so. Of the engine's thread, which copies and never waits for the disk:
///
///   file.advance(scheduler);                 // between steps: what was read is put where it belongs
///   const StepPlan& plan = scheduler.plan(now);
///   file.save_blocks(plan.file_writes);      // before anything is written to blocks
///   ... snapshots are begun from ...
///   file.save_states(plan.file_writes);      // before places of snapshots are given out
class PrefixFile {
 public:
  struct Options {
    std::filesystem::path folder;
    PrefixFileOptions pages;
    int64_t unit_bytes = 0, snapshot_bytes = 0;
  };
  /// With `file` of these pages. All others outlive it.
  PrefixFile(const Options& options, FileDescriptor file, KvCache& cache, SnapshotSpace& snapshots, Stream& stream);

  void save_blocks(std::span<const FileWrite> writes);
  void save_states(std::span<const FileWrite> writes);
  void advance(Scheduler& scheduler);
  /// Until there is something to advance, or time is up.
  void wait(std::chrono::milliseconds timeout) { file_.wait(timeout); }

 private:
  bool takes(const FileWrite& write, int64_t num_bytes, int64_t num_more);
  void add(bool is_write, FileRecordId record, const std::vector<int32_t>& pages, Storage bytes, int64_t num_bytes);
  void note_written(Scheduler& scheduler, const PageFile::Job& job, FileRecordId record);
  void put(Scheduler& scheduler, PageFile::Job& job, FileRecordId record);
  void keep_buffer(Storage bytes);
  Storage unit_buffer();

  const Options options_;
  KvCache& cache_;
  SnapshotSpace& snapshots_;
  Stream& stream_;
  std::vector<Storage> buffers_;        // of unit_bytes, to be used again
  std::vector<FileRecordId> too_many_;  // writes that were not even tried, which the scheduler is still to hear of
  bool has_complained_ = false;
  PendingCopies pending_;
  PageFile file_;
};

}  // namespace ferry

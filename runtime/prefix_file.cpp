#include "runtime/prefix_file.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "kernels/stream.h"

namespace ferry {
namespace {

// What is on its way to the file or from it, in the host's memory: some tenths of a second of a disk's time, and never less
// than one thing.
constexpr int64_t kMaxPendingBytes = int64_t{64} << 20;
constexpr std::size_t kMaxSpareBuffers = 32;

uint64_t tag_of(FileRecordId record) {
  return static_cast<uint64_t>(record.serial) << 32U | static_cast<uint32_t>(record.number);
}

FileRecordId record_of(uint64_t tag) {
  return {.number = static_cast<int32_t>(tag & 0xffffffffU), .serial = static_cast<uint32_t>(tag >> 32U)};
}

}  // namespace

PrefixFile::PrefixFile(const Options& options, FileDescriptor file, KvCache& cache, SnapshotSpace& snapshots, Stream& stream)
    : options_(options),
      cache_(cache),
      snapshots_(snapshots),
      stream_(stream),
      file_(std::move(file), options.pages.num_pages, options.pages.page_bytes) {}

void PrefixFile::save_blocks(std::span<const FileWrite> writes) {
  std::vector<std::pair<const FileWrite*, Storage>> copies;
  int64_t num_bytes = 0;
  for (const FileWrite& write : writes) {
    if (write.snapshot >= 0 || !takes(write, options_.unit_bytes, num_bytes)) continue;
    Storage bytes = unit_buffer();
    Address<std::byte> to = bytes.address();
    for (const int32_t block : write.blocks) {
      cache_.read_block(stream_, block, to);
      to = to + KvCache::bytes_per_block(cache_.options());
    }
    num_bytes += options_.unit_bytes;
    copies.emplace_back(&write, std::move(bytes));
  }
  if (copies.empty()) return;
  if (!stream_.is_on_host()) stream_.wait(stream_.submit());
  for (auto& [write, bytes] : copies) add(true, write->record, write->pages, std::move(bytes), options_.unit_bytes);
}

void PrefixFile::save_states(std::span<const FileWrite> writes) {
  for (const FileWrite& write : writes) {
    if (write.snapshot >= 0 && takes(write, options_.snapshot_bytes, 0))
      add(true, write.record, write.pages, snapshots_.take(write.snapshot), options_.snapshot_bytes);
  }
}

/// Whether there is room for it among what is on its way, and `num_more` bytes that are about to be.
bool PrefixFile::takes(const FileWrite& write, int64_t num_bytes, int64_t num_more) {
  const int64_t num_pending = file_.num_pending_bytes(true) + num_more;
  if (num_pending == 0 || num_pending + num_bytes <= kMaxPendingBytes) return true;
  too_many_.push_back(write.record);
  return false;
}

void PrefixFile::advance(Scheduler& scheduler) {
  for (const FileRecordId record : std::exchange(too_many_, {})) scheduler.note_file_write(record, 0, FileDrop::kBusy);
  for (PageFile::Job& job : file_.take_done()) {
    const FileRecordId record = record_of(job.tag);
    job.is_write ? note_written(scheduler, job, record) : put(scheduler, job, record);
    if (job.bytes.size() > 0) keep_buffer(std::move(job.bytes));
  }
  for (int64_t num_pending = file_.num_pending_bytes(false); num_pending < kMaxPendingBytes;) {
    const std::optional<FileRead> read = scheduler.next_file_read();
    if (!read) return;
    const int64_t num_bytes = read->is_state ? options_.snapshot_bytes : options_.unit_bytes;
    add(false, read->record, read->pages, read->is_state ? snapshots_.spare() : unit_buffer(), num_bytes);
    num_pending += std::max<int64_t>(num_bytes, 1);
  }
}

void PrefixFile::note_written(Scheduler& scheduler, const PageFile::Job& job, FileRecordId record) {
  const bool is_done = job.outcome == PageFile::Outcome::kDone;
  if (!is_done && !std::exchange(has_complained_, true)) {
    std::fprintf(stderr,
                 "ferry: warning: the prefix cache's file in '%s' cannot be written to: %s; nothing more goes there, what is "
                 "there is still of use\n",
                 options_.folder.c_str(), std::strerror(job.error));
  }
  scheduler.note_file_write(record, job.num_bytes, is_done ? std::nullopt : std::optional(FileDrop::kWriteFailed));
}

/// What was read, where the scheduler wants it.
void PrefixFile::put(Scheduler& scheduler, PageFile::Job& job, FileRecordId record) {
  const FileReadResult result{
      .is_good = job.outcome == PageFile::Outcome::kDone, .num_bytes = job.num_bytes, .seconds = job.seconds};
  const std::optional<FileTarget> target = scheduler.take_file_read(record, result);
  const std::vector<FileWrite> writes = scheduler.take_file_writes();
  save_blocks(writes);
  save_states(writes);
  if (!target) return;
  if (target->snapshot >= 0) return snapshots_.put(target->snapshot, std::exchange(job.bytes, {}));
  Address<const std::byte> from = std::as_const(job.bytes).address();
  for (const int32_t block : target->blocks) {
    cache_.write_block(stream_, block, from);
    from = from + KvCache::bytes_per_block(cache_.options());
  }
  pending_.add(stream_, options_.unit_bytes);
}

void PrefixFile::add(bool is_write, FileRecordId record, const std::vector<int32_t>& pages, Storage bytes, int64_t num_bytes) {
  file_.add({.is_write = is_write, .tag = tag_of(record), .pages = pages, .bytes = std::move(bytes), .num_bytes = num_bytes});
}

/// The host's bytes were read by then, also where a device has still to get them.
void PrefixFile::keep_buffer(Storage bytes) {
  if (static_cast<int64_t>(bytes.size()) == options_.snapshot_bytes) return snapshots_.give_back(std::move(bytes));
  if (buffers_.size() < kMaxSpareBuffers) buffers_.push_back(std::move(bytes));
}

Storage PrefixFile::unit_buffer() {
  if (buffers_.empty()) return host_memory().allocate(static_cast<std::size_t>(options_.unit_bytes));
  Storage bytes = std::move(buffers_.back());
  buffers_.pop_back();
  return bytes;
}

}  // namespace ferry

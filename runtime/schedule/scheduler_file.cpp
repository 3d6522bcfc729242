#include <algorithm>
#include <chrono>
#include <utility>

#include "runtime/schedule/scheduler.h"

// What requests wait for of the prefix cache's file: what a Scheduler does about it.

namespace ferry {
namespace {

constexpr std::size_t kMaxLoads = 4;               // requests that it is read for at once
constexpr std::chrono::seconds kLoadPatience{10};  // then a request goes on without what it waits for

}  // namespace

/// Before a request is admitted for the first time: if the file has more of its prompt than memory has, it leaves the queue
/// until that was read, for which there must be blocks.
Scheduler::FileLook Scheduler::look_in_file(Sequence& sequence, TimePoint now) {
  if (!prefix_cache_ || !prefix_cache_->has_file()) return FileLook::kNothing;
  if (sequence.looked_in_file || sequence.state() != RequestState::kQueued) return FileLook::kNothing;
  std::optional<PrefixLoad> load = prefix_cache_->plan_load(sequence.request);
  if (load) {
    int64_t num_blocks = load->num_blocks + num_growth_blocks(running_.size());
    for (const auto& other : loading_) num_blocks += other->load->num_blocks;
    if (loading_.size() >= kMaxLoads || num_blocks > num_available()) {
      if (!loading_.empty() || !running_.empty()) return FileLook::kNoRoom;
      load.reset();
    }
  }
  sequence.looked_in_file = true;
  if (!load) return FileLook::kNothing;
  load->begun = now;
  prefix_cache_->begin_load(*load);
  sequence.load = std::move(load);
  loading_.push_back(take_waiting(sequence));
  return FileLook::kReading;
}

/// Those that have what they waited for, or waited too long, go back to their places in the queue. Until they begin, what was
/// read for them goes last.
void Scheduler::end_loads(TimePoint now) {
  for (std::size_t i = 0; i < loading_.size();) {
    const PrefixLoad& load = *loading_[i]->load;
    if (!load.is_done() && now - load.begun < kLoadPatience) {
      ++i;
      continue;
    }
    std::unique_ptr<Sequence> sequence = std::move(loading_[i]);
    loading_.erase(loading_.begin() + static_cast<std::ptrdiff_t>(i));
    queue(std::move(sequence));
  }
}

void Scheduler::end_load(Sequence& sequence) {
  if (sequence.load) prefix_cache_->end_load(*sequence.load);
  sequence.load.reset();
}

bool Scheduler::waits_for_file() const {
  return std::ranges::any_of(loading_, [](const auto& sequence) { return !sequence->load->is_done(); });
}

std::optional<FileRead> Scheduler::next_file_read() {
  for (const auto& sequence : loading_) {
    if (std::optional<FileRead> read = prefix_cache_->next_read(*sequence->load)) return read;
  }
  return std::nullopt;
}

std::optional<FileTarget> Scheduler::take_file_read(FileRecordId record, const FileReadResult& result) {
  const auto asked = [&](const auto& sequence) {
    return !sequence->load->asked.empty() && sequence->load->asked.front() == record;
  };
  const auto found = std::ranges::find_if(loading_, asked);
  if (found == loading_.end()) return std::nullopt;
  return prefix_cache_->take_read(*(*found)->load, result);
}

std::vector<FileWrite> Scheduler::take_file_writes() {
  return prefix_cache_ ? prefix_cache_->take_writes() : std::vector<FileWrite>{};
}

/// Of the plan.
void Scheduler::drop_file_writes() {
  for (const FileWrite& unwritten : std::exchange(plan_.file_writes, {})) note_file_write(unwritten.record, 0, FileDrop::kBusy);
}

void Scheduler::note_file_write(FileRecordId record, int64_t num_bytes, std::optional<FileDrop> why_not) {
  if (prefix_cache_) prefix_cache_->note_written(record, num_bytes, why_not);
}

}  // namespace ferry

#include "profiler/archive/step_archive.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "profiler/archive/retention.h"
#include "runtime/base/error.h"
#include "runtime/base/pending_file.h"
#include "runtime/base/quoting.h"
#include "runtime/base/text_file.h"

namespace ferry {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndex = "index.jsonl";
constexpr int64_t kMaxIndexBytes = int64_t{256} << 20;
constexpr std::size_t kMaxSegments = std::size_t{1} << 20;

void write_text(const fs::path& path, std::string_view text) {
  PendingFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

/// Lines of the index that can be read, by file.
std::map<std::string, SegmentEntry> read_index(const fs::path& path) {
  std::map<std::string, SegmentEntry> entries;
  std::string text;
  try {
    text = read_text_file(path, kMaxIndexBytes);
  } catch (const Error&) {  // the segments say the same
    return entries;
  }
  for (std::string_view rest = text; !rest.empty() && entries.size() < kMaxSegments;) {
    const std::size_t end = rest.find('\n');
    if (end == std::string_view::npos) break;  // the last one is not whole
    try {
      SegmentEntry entry = parse_entry(rest.substr(0, end), path.string());
      std::string file = entry.file;
      entries.insert_or_assign(std::move(file), std::move(entry));
    } catch (const Error&) {  // likewise
    }
    rest.remove_prefix(end + 1);
  }
  return entries;
}

/// By its head alone. `is_read` is whether the file said anything at all: one that cannot be opened now may be whole.
std::optional<SegmentEntry> look_at(const fs::path& path, bool& is_read) {
  std::ifstream file(path, std::ios::binary);
  is_read = file.is_open();
  std::string head(4096, '\0');
  const auto read_more = [&](std::size_t from) {
    file.read(head.data() + from, static_cast<std::streamsize>(head.size() - from));
    head.resize(from + static_cast<std::size_t>(file.gcount()));
  };
  read_more(0);
  is_read = is_read && !file.bad();
  uint32_t head_bytes = 0;
  if (head.size() > 16) std::memcpy(&head_bytes, head.data() + 12, sizeof head_bytes);
  if (head_bytes > kMaxHeadBytes) return std::nullopt;
  if (const std::size_t had = head.size(); 16 + std::size_t{head_bytes} > had) {
    head.resize(16 + std::size_t{head_bytes});
    read_more(had);
  }
  try {
    SegmentEntry entry = read_segment_entry(head, path.string());
    entry.file = path.filename().string();
    return entry;
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// A segment that says nothing.
struct MuteSegment {
  std::string file;
  bool is_read = true;  // else it cannot be opened now, and may be whole
};

/// Whoever misses steps learns of files that are there and say nothing.
void warn_of_mute(const fs::path& folder, const std::vector<MuteSegment>& mute) {
  if (mute.empty()) return;
  const std::string more = mute.size() == 1 ? "" : " and " + std::to_string(mute.size() - 1) + " more";
  std::fprintf(stderr, "ferry: warning: archive %s: %s%s cannot be read, and the steps are left out\n",
               printable(folder.string()).c_str(), printable(mute.front().file).c_str(), more.c_str());
}

FileDescriptor take_lock(const fs::path& folder) {
  std::error_code code;
  fs::create_directories(folder, code);
  if (code) throw Error(ErrorCode::kFailedPrecondition, "archive " + folder.string() + " cannot be made: " + code.message());
  const fs::path path = folder / "lock";
  FileDescriptor lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (lock.get() < 0)
    throw Error(ErrorCode::kFailedPrecondition, "archive " + folder.string() + " cannot be used: " + std::strerror(errno));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    throw Error(ErrorCode::kFailedPrecondition,
                "archive " + folder.string() + " is another server's, which runs; allowed: a --trace-dir for each");
  }
  return lock;
}

/// What a writer that died left half-written.
void remove_half_written(const fs::path& folder) {
  std::error_code code;
  std::vector<fs::path> left;
  for (fs::directory_iterator entry(folder, code), end; !code && entry != end; entry.increment(code)) {
    const std::string name = entry->path().filename().string();
    const bool is_ours = name.find(kSegmentEnding) != std::string::npos || name.starts_with("run-") ||
                         name.starts_with("steps-") || name.starts_with(kIndex);
    if (is_ours && name.find(".tmp.") != std::string::npos) left.push_back(entry->path());
  }
  for (const fs::path& path : left) fs::remove(path, code);
}

std::vector<KeptSize> sizes_of(const std::vector<SegmentEntry>& entries) {
  std::vector<KeptSize> sizes;
  sizes.reserve(entries.size());
  for (const SegmentEntry& e : entries)
    sizes.push_back({.time_ns = e.time_ns, .why = e.why, .phase = e.facts.phase, .seconds = e.facts.seconds, .bytes = e.bytes});
  return sizes;
}

/// All segments by what they say, and those that say nothing.
std::vector<SegmentEntry> read_segments(const fs::path& folder, std::vector<MuteSegment>& mute) {
  std::map<std::string, SegmentEntry> known = read_index(folder / kIndex);
  std::vector<SegmentEntry> entries;
  std::error_code code;
  for (fs::directory_iterator file(folder, code), end; !code && file != end && entries.size() < kMaxSegments;
       file.increment(code)) {
    const std::string name = file->path().filename().string();
    if (!name.ends_with(kSegmentEnding)) continue;
    std::error_code gone;
    if (!fs::is_regular_file(file->symlink_status(gone))) continue;
    const auto bytes = static_cast<int64_t>(file->file_size(gone));
    if (gone) continue;
    const auto found = known.find(name);
    std::optional<SegmentEntry> entry;
    if (found != known.end() && found->second.bytes == bytes) entry = std::move(found->second);
    bool is_read = true;
    if (!entry) entry = look_at(file->path(), is_read);
    if (!entry) {
      if (file->exists(gone)) mute.push_back({name, is_read});
      continue;
    }
    entry->bytes = bytes;
    entries.push_back(std::move(*entry));
  }
  if (code) throw Error(ErrorCode::kNotFound, "archive " + folder.string() + " cannot be read: " + code.message());
  warn_of_mute(folder, mute);
  std::ranges::sort(entries, {}, [](const SegmentEntry& e) { return std::pair(e.time_ns, std::string_view(e.file)); });
  return entries;
}

/// As a segment's name has it; 0: it has none.
int64_t time_of_name(const std::string& file) {
  int64_t time_ns = 0;
  std::from_chars(file.data(), file.data() + file.size(), time_ns);
  return time_ns;
}

}  // namespace

std::vector<SegmentEntry> read_archive(const fs::path& folder) {
  std::vector<MuteSegment> mute;
  return read_segments(folder, mute);
}

bool holds_archive(const fs::path& folder) {
  std::error_code code;
  for (fs::directory_iterator file(folder, code), end; !code && file != end; file.increment(code)) {
    const std::string name = file->path().filename().string();
    if (name == kIndex || name.ends_with(kSegmentEnding) || (name.starts_with("steps-") && name.ends_with(".json")))
      return true;
  }
  return false;
}

StepArchive::StepArchive(fs::path folder, int64_t max_bytes, int64_t now_ns)
    : folder_(std::move(folder)), max_bytes_(max_bytes), begun_ns_(now_ns), lock_(take_lock(folder_)) {
  remove_half_written(folder_);
  std::vector<MuteSegment> mute;
  entries_ = read_segments(folder_, mute);
  for (const SegmentEntry& entry : entries_) num_bytes_ += entry.bytes;
  std::ranges::sort(mute, {}, [](const MuteSegment& m) { return std::pair(time_of_name(m.file), std::string_view(m.file)); });
  for (const auto& [file, is_read] : mute) {
    std::error_code gone;
    const auto bytes = static_cast<int64_t>(fs::file_size(folder_ / file, gone));
    if (gone) continue;
    if (is_read) unreadable_.push_back({file, bytes});
    unreadable_bytes_ += bytes;
  }
  thin_out(now_ns);
  drop_unused_runs();
  write_index();
  find_other_files();
}

/// Writes what the run's segments share, where that is not there yet.
void StepArchive::name_run(const CaptureInfo& info) {
  RunKey key{info.placement.epoch, info.world_size, info.expert_rank};
  if (!run_.empty() && key == run_key_) return;
  const std::string name = "run-" + std::to_string(begun_ns_) + "-" + std::to_string(num_runs_) + ".json";
  const std::string text = encode_capture_info(run_info(info));
  write_text(folder_ / name, text);
  other_bytes_ += std::ssize(text);
  ++num_runs_;
  run_ = name;
  run_key_ = std::move(key);
}

void StepArchive::add(const KeptStep& kept, int64_t now_ns) {
  name_run(kept.capture.info);
  const RankCapture& own = kept.capture.ranks.front();
  SegmentEntry entry{
      .run = run_,
      .time_ns = kept.capture.info.start_epoch_ns + own.ticks.to_ns(kept.facts.begin) - own.ticks.to_ns(own.begin),
      .why = kept.why,
      .facts = kept.facts};
  entry.file =
      std::to_string(entry.time_ns) + "-" + std::to_string(kept.facts.step) + "-" + kept_for_name(kept.why) + kSegmentEnding;
  if (std::ranges::find(entries_, entry.file, &SegmentEntry::file) != entries_.end()) return;  // it is there
  const std::string bytes = encode_segment(entry, kept.capture);
  entry.bytes = std::ssize(bytes);
  if (const int64_t most = std::min(kMaxSegmentBytes, max_bytes_ / 4); entry.bytes > most) {  // it would cost many others
    throw Error(ErrorCode::kResourceExhausted, "step " + std::to_string(entry.facts.step) + " takes " +
                                                   std::to_string(entry.bytes) + " bytes; allowed: up to " +
                                                   std::to_string(most) + " of this archive");
  }
  write_text(folder_ / entry.file, bytes);
  num_bytes_ += entry.bytes;
  append_to_index(entry);
  const auto place = std::ranges::upper_bound(entries_, entry.time_ns, {}, &SegmentEntry::time_ns);
  entries_.insert(place, std::move(entry));
  if (num_bytes_ + unreadable_bytes_ > room()) thin_out(now_ns);
  if (num_lines_ > 2 * entries_.size() + 64) {
    drop_unused_runs();
    write_index();
  }
}

void StepArchive::find_other_files() {
  other_bytes_ = 0;
  std::error_code code;
  for (fs::directory_iterator file(folder_, code), end; !code && file != end; file.increment(code)) {
    std::error_code gone;
    if (file->path().filename().string().ends_with(kSegmentEnding) || !fs::is_regular_file(file->symlink_status(gone)))
      continue;
    if (const auto bytes = static_cast<int64_t>(file->file_size(gone)); !gone) other_bytes_ += bytes;
  }
}

void StepArchive::drop_unreadable() {
  auto left = unreadable_.begin();
  for (; left != unreadable_.end() && num_bytes_ + unreadable_bytes_ > room(); ++left) {
    std::error_code code;
    fs::remove(folder_ / left->file, code);
    unreadable_bytes_ -= left->bytes;
  }
  unreadable_.erase(unreadable_.begin(), left);
}

void StepArchive::thin_out(int64_t now_ns) {
  find_other_files();
  drop_unreadable();
  const std::vector<std::size_t> dropped = choose_to_drop(sizes_of(entries_), room() - unreadable_bytes_, now_ns);
  for (const std::size_t i : dropped) {
    std::error_code code;
    fs::remove(folder_ / entries_[i].file, code);
    num_bytes_ -= entries_[i].bytes;
    entries_[i].bytes = -1;
  }
  std::erase_if(entries_, [](const SegmentEntry& entry) { return entry.bytes < 0; });
}

void StepArchive::drop_unused_runs() const {
  std::set<std::string> used{run_};
  for (const SegmentEntry& entry : entries_) used.insert(entry.run);
  std::vector<fs::path> unused;
  std::error_code code;
  for (fs::directory_iterator file(folder_, code), end; !code && file != end; file.increment(code)) {
    const std::string name = file->path().filename().string();
    if (name.starts_with("run-") && name.ends_with(".json") && !used.contains(name)) unused.push_back(file->path());
  }
  for (const fs::path& path : unused) fs::remove(path, code);
}

void StepArchive::write_index() {
  std::string text;
  for (const SegmentEntry& entry : entries_) text += entry_text(entry) + "\n";
  write_text(folder_ / kIndex, text);
  num_lines_ = entries_.size();
}

/// What cannot be appended is read from the segment itself.
void StepArchive::append_to_index(const SegmentEntry& entry) {
  std::ofstream index(folder_ / kIndex, std::ios::app | std::ios::binary);
  const std::string line = entry_text(entry) + "\n";
  index << line;
  other_bytes_ += std::ssize(line);
  ++num_lines_;
}

}  // namespace ferry

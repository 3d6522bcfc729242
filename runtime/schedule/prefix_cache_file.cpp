#include <algorithm>
#include <limits>

#include "runtime/base/check.h"
#include "runtime/schedule/prefix_cache.h"

// What a PrefixCache does with its file.

namespace ferry {
namespace {

constexpr int32_t kNowhere = -1;
constexpr int64_t kFileShareAtOnce = 64;  // a part of the file that is given up together, of what is of no value

}  // namespace

/// Whether a sequence may begin there, or behind it. Its snapshot, if it has one, is looked at elsewhere.
bool PrefixCache::is_of_use(int32_t unit) const {
  return !options_.has_states || at(unit).state_record != kNowhere || at(unit).first_child != kNowhere;
}

/// Whether its keys and values are in the file, or on their way.
bool PrefixCache::spill_blocks(int32_t unit) {
  if (!file_ || !is_of_use(unit)) return false;
  Unit& spilled = at(unit);
  const bool is_complete =
      spilled.blocks_record != kNowhere && (file_->at(spilled.blocks_record).has_pairs || !spilled.has_pairs);
  const int64_t num_pages = options_.file.unit_pages;
  if (is_complete || !is_writing_ || !make_file_room(num_pages, std::numeric_limits<double>::infinity()))
    return spilled.blocks_record != kNowhere;
  if (spilled.blocks_record != kNowhere) file_->remove(spilled.blocks_record);
  const int32_t number = file_->add(num_pages, unit, false);
  spilled.blocks_record = number;
  file_->at(number).has_pairs = spilled.has_pairs;
  const std::span<const int32_t> blocks = blocks_of(unit);
  writes_.push_back(
      {.record = file_->id_of(number), .pages = file_->at(number).pages, .blocks = {blocks.begin(), blocks.end()}});
  return true;
}

/// The state of a snapshot that is given up; one that somebody is still to begin from stays where it is, and is lost then.
void PrefixCache::spill_state(int32_t snapshot) {
  const Snapshot& spilled = snapshots_[static_cast<std::size_t>(snapshot)];
  if (!is_writing_ || at(spilled.unit).state_record != kNowhere || spilled.num_readers > 0) return;
  const int64_t num_pages = options_.file.snapshot_pages;
  if (!make_file_room(num_pages, file_value_of(spilled.unit, spilled.last_used))) return;
  const int32_t number = file_->add(num_pages, spilled.unit, true);
  at(spilled.unit).state_record = number;
  file_->at(number).last_used = spilled.last_used;
  writes_.push_back({.record = file_->id_of(number), .pages = file_->at(number).pages, .snapshot = snapshot});
}

/// By giving up what is worth less than `value`; false if there is too little of that.
bool PrefixCache::make_file_room(int64_t num_pages, double value) {
  while (file_->num_free() < num_pages && free_records(num_pages, value)) {
  }
  return file_->num_free() >= num_pages;
}

/// One pass over what may go; what follows a unit goes in an earlier one. Whether any went.
bool PrefixCache::free_records(int64_t num_pages, double value) {
  list_file_candidates();
  std::ranges::sort(file_candidates_, std::less<>());
  const int64_t wanted = std::max(num_pages, file_->num_total() / kFileShareAtOnce);
  bool is_any = false;
  for (const FileCandidate& candidate : file_candidates_) {
    const bool has_value = candidate.order == 2;
    if (file_->num_free() >= (has_value ? num_pages : wanted) || (has_value && candidate.value >= value)) break;
    drop_record(candidate.record, FileDrop::kReplaced);
    is_any = true;
  }
  return is_any;
}

void PrefixCache::list_file_candidates() {
  file_candidates_.clear();
  for (int32_t number = 0; number < file_->end(); ++number) {
    const FileRecords::Record& record = file_->at(number);
    if (record.unit < 0 || at(record.unit).num_expecting > 0) continue;
    const Unit& unit = at(record.unit);
    const auto last_used = static_cast<double>(record.is_state ? record.last_used : unit.last_used);
    if (record.is_state ? unit.snapshot != kNowhere : unit.has_blocks) {
      file_candidates_.push_back({.order = 0, .value = last_used, .record = number});
    } else if (record.is_state) {
      file_candidates_.push_back({.order = 2, .value = file_value_of(record.unit, record.last_used), .record = number});
    } else if (unit.first_child == kNowhere && unit.state_record == kNowhere) {
      file_candidates_.push_back({.order = options_.has_states ? 1 : 2, .value = last_used, .record = number});
      if (!options_.has_states) file_candidates_.back().value = file_value_of(record.unit, unit.last_used);
    }
  }
}

/// Tokens that a unit's state saves (or without states its keys and values), for each request since it was last of use and each
/// page.
double PrefixCache::file_value_of(int32_t unit, int64_t last_used) const {
  const auto has_state = [&](int32_t at_unit) {
    return at(at_unit).snapshot != kNowhere || at(at_unit).state_record != kNowhere;
  };
  int32_t previous = at(unit).parent;
  while (options_.has_states && previous != kNowhere && !has_state(previous)) previous = at(previous).parent;
  const int64_t num_units = at(unit).num_units - (previous == kNowhere ? 0 : at(previous).num_units);
  const int64_t num_pages = options_.has_states ? options_.file.snapshot_pages : options_.file.unit_pages;
  return static_cast<double>(num_units * unit_tokens_) / static_cast<double>((1 + clock_ - last_used) * num_pages);
}

/// With its unit, if that is in the file alone.
void PrefixCache::drop_record(int32_t number, FileDrop why) {
  const int32_t unit = file_->at(number).unit;
  const bool is_state = file_->at(number).is_state;
  (is_state ? at(unit).state_record : at(unit).blocks_record) = kNowhere;
  file_->remove(number);
  ++load_.file_drops[static_cast<std::size_t>(why)];
  if (!is_state && !at(unit).has_blocks) forget(unit);
}

void PrefixCache::note_written(FileRecordId record, int64_t num_bytes, std::optional<FileDrop> why_not) {
  if (!why_not) {
    load_.file_written_bytes += num_bytes;
    return;
  }
  if (why_not == FileDrop::kWriteFailed) is_writing_ = false;
  if (file_ && file_->is_there(record)) drop_record(record.number, *why_not);
}

std::optional<PrefixLoad> PrefixCache::plan_load(const Request& request) {
  if (!file_ || request.needs_all_rows()) return std::nullopt;
  CachedPrefix prefix;
  match(request, prefix);
  const auto is_away = [this](int32_t unit) { return !at(unit).has_blocks; };
  const auto last_with_state = [&](std::size_t num_units, bool is_in_memory) {
    const auto has_state = [&](const Unit& unit) {
      return unit.snapshot != kNowhere || (!is_in_memory && unit.state_record != kNowhere);
    };
    while (options_.has_states && num_units > 0 && !has_state(at(path_[num_units - 1]))) --num_units;
    return num_units;
  };
  const auto num_in_memory = static_cast<std::size_t>(std::ranges::find_if(path_, is_away) - path_.begin());
  const std::size_t num_ready = last_with_state(num_in_memory, true), num_units = last_with_state(path_.size(), false);
  if (num_units <= num_ready) return std::nullopt;
  PrefixLoad load{.num_passed = std::min(num_in_memory, num_units),
                  .wants_state = options_.has_states && at(path_[num_units - 1]).snapshot == kNowhere,
                  .num_tokens_in_memory = static_cast<int64_t>(num_ready) * unit_tokens_,
                  .num_blocks = static_cast<int64_t>(num_units) * unit_blocks_};
  const int64_t num_pages = static_cast<int64_t>(num_units - load.num_passed) * options_.file.unit_pages +
                            (load.wants_state ? options_.file.snapshot_pages : 0);
  const auto num_saved = static_cast<int64_t>(num_units - num_ready) * unit_tokens_;
  if (!costs_.is_worth_reading(num_pages * options_.file.page_bytes, num_saved)) return std::nullopt;
  for (const int32_t unit : std::span(path_).first(num_units)) load.units.push_back({.unit = unit, .serial = at(unit).serial});
  return load;
}

void PrefixCache::begin_load(PrefixLoad& load) {
  for (const PrefixLoad::Unit& unit : load.units) ++at(unit.unit).num_expecting;
}

void PrefixCache::end_load(PrefixLoad& load) {
  for (const PrefixLoad::Unit& unit : load.units) {
    if (is_there(unit)) --at(unit.unit).num_expecting;
  }
  load.units.clear();
}

void PrefixCache::count_load(const PrefixLoad& load, int64_t num_tokens) {
  if (load.num_taken == 0 || num_tokens <= load.num_tokens_in_memory) return;
  ++load_.num_file_hits;
  load_.num_file_tokens += num_tokens - load.num_tokens_in_memory;
}

bool PrefixCache::is_there(const PrefixLoad::Unit& unit) const {
  return at(unit.unit).is_there && at(unit.unit).serial == unit.serial;
}

std::optional<FileRead> PrefixCache::next_read(PrefixLoad& load) {
  const auto ask = [&](int32_t number) {
    load.asked.push_back(file_->id_of(number));
    return FileRead{.record = load.asked.back(), .pages = file_->at(number).pages, .is_state = file_->at(number).is_state};
  };
  while (!load.is_given_up && load.num_passed < load.units.size()) {
    const PrefixLoad::Unit& next = load.units[load.num_passed++];
    load.is_given_up = !is_there(next);
    if (!load.is_given_up && !at(next.unit).has_blocks) return ask(at(next.unit).blocks_record);
  }
  if (load.is_given_up || !std::exchange(load.wants_state, false)) return std::nullopt;
  const PrefixLoad::Unit& last = load.units.back();
  load.is_given_up = !is_there(last) || (at(last.unit).snapshot == kNowhere && at(last.unit).state_record == kNowhere);
  if (load.is_given_up || at(last.unit).snapshot != kNowhere) return std::nullopt;
  return ask(at(last.unit).state_record);
}

std::optional<FileTarget> PrefixCache::take_read(PrefixLoad& load, const FileReadResult& result) {
  const FileRecordId id = load.asked.front();
  load.asked.pop_front();
  load_.file_read_bytes += result.num_bytes;
  if (!file_->is_there(id)) {
    load.is_given_up = true;
  } else if (!result.is_good) {
    load.has_failed = load.is_given_up = true;
    drop_record(id.number, FileDrop::kUnreadable);
  }
  if (load.is_given_up) return std::nullopt;
  costs_.add_read(result.num_bytes, result.seconds);
  FileRecords::Record& record = file_->at(id.number);
  record.last_used = clock_;
  const int32_t unit = record.unit;
  if (record.is_state ? at(unit).snapshot != kNowhere : at(unit).has_blocks) return std::nullopt;  // computed meanwhile
  std::optional<FileTarget> target = record.is_state ? restore_state(unit) : restore_blocks(unit, record.has_pairs);
  load.is_given_up = !target;
  load.num_taken += target ? 1 : 0;
  return target;
}

/// In blocks that are free or given up; nothing if there are none, or the unit before it is not in memory any more.
std::optional<FileTarget> PrefixCache::restore_blocks(int32_t unit, bool has_pairs) {
  const PrefixLoad::Unit restored{.unit = unit, .serial = at(unit).serial};
  make_room(unit_blocks_);
  if (!is_there(restored)) return std::nullopt;
  const int32_t parent = at(unit).parent;
  FileTarget target;
  if ((parent != kNowhere && !at(parent).has_blocks) || !pool_.allocate(unit_blocks_, target.blocks)) return std::nullopt;
  hold(unit, target.blocks);
  at(unit).has_pairs = has_pairs;
  at(unit).last_used = clock_;
  pool_.release(target.blocks);
  return target;
}

/// In the place of any other: somebody is about to begin from it.
std::optional<FileTarget> PrefixCache::restore_state(int32_t unit) {
  if (!at(unit).has_blocks) return std::nullopt;
  const Snapshot reserved{.key = at(unit).key, .is_reserved = true, .last_used = clock_};
  const int32_t snapshot = take_snapshot(reserved, std::numeric_limits<double>::infinity());
  if (snapshot == kNowhere) return std::nullopt;
  assign(snapshot, unit);
  return FileTarget{.snapshot = snapshot};
}

void PrefixCache::check_file() const {
  int64_t num_records = 0, num_pages = 0;
  for (int32_t number = 0; number < file_->end(); ++number) {
    const FileRecords::Record& record = file_->at(number);
    if (record.unit < 0) continue;
    ++num_records;
    num_pages += std::ssize(record.pages);
    const Unit& unit = at(record.unit);
    FERRY_CHECK(unit.is_there && (record.is_state ? unit.state_record : unit.blocks_record) == number) << "record " << number;
  }
  for (const Unit& unit : units_) {
    if (!unit.is_there) continue;
    num_records -= (unit.blocks_record != kNowhere ? 1 : 0) + (unit.state_record != kNowhere ? 1 : 0);
  }
  FERRY_CHECK_EQ(num_records, 0);
  FERRY_CHECK_EQ(num_pages, file_->num_total() - file_->num_free());
}

}  // namespace ferry

#include "runtime/schedule/prefix_cache.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

#include "runtime/base/check.h"
#include "runtime/schedule/snapshot_places.h"

namespace ferry {
namespace {

constexpr int32_t kRoot = -1, kNone = -1;
constexpr std::size_t kRememberedKeys = 1 << 14;  // of what was evicted, and of first units
constexpr int64_t kGridAge = 64;                  // requests by which a snapshot of the grid is taken to be older than it is
constexpr int64_t kUnitsAtOnce = 16;              // given up together, so that not every step looks for some

uint64_t mix(uint64_t x) {  // the finaliser of splitmix64
  x = (x ^ x >> 30U) * 0xbf58476d1ce4e5b9U;
  x = (x ^ x >> 27U) * 0x94d049bb133111ebU;
  return x ^ x >> 31U;
}

const decltype(UnitContent::digest)& digest_of(const Request& request, int64_t unit) {
  static constexpr decltype(UnitContent::digest) kPlainText{};
  const auto at = std::ranges::lower_bound(request.unit_contents, unit, {}, &UnitContent::unit);
  return at != request.unit_contents.end() && at->unit == unit ? at->digest : kPlainText;
}

bool is_remembered(const std::vector<uint64_t>& keys, uint64_t key) { return keys[key % keys.size()] == key; }
void remember(std::vector<uint64_t>& keys, uint64_t key) { keys[key % keys.size()] = key; }

}  // namespace

const char* cache_miss_name(CacheMiss miss) {
  switch (miss) {
    case CacheMiss::kNone: return "none";
    case CacheMiss::kShort: return "short";
    case CacheMiss::kNew: return "new";
    case CacheMiss::kNoSnapshot: return "no_snapshot";
    case CacheMiss::kEvicted: return "evicted";
    case CacheMiss::kSalt: return "salt";
    case CacheMiss::kPromptLogprobs: return "prompt_logprobs";
    case CacheMiss::kFile: return "file";
  }
  return "";
}

PrefixCache::PrefixCache(const PrefixCacheOptions& options, int64_t unit_tokens, int64_t block_tokens, BlockPool& pool)
    : options_(options), unit_tokens_(unit_tokens), unit_blocks_(unit_tokens / block_tokens), pool_(pool) {
  FERRY_CHECK_EQ(unit_tokens % block_tokens, 0);
  const PrefixFileOptions& file = options.file;
  const int64_t num_in_file = file.num_pages > 0 ? file.num_pages / file.unit_pages : 0;
  const auto num_units = static_cast<std::size_t>(pool.num_total() / unit_blocks_ + num_in_file);
  if (file.num_pages > 0) file_.emplace(file.num_pages);
  is_writing_ = file_.has_value();
  units_.resize(num_units);
  tokens_.resize(num_units * static_cast<std::size_t>(unit_tokens_));
  blocks_.resize(num_units * static_cast<std::size_t>(unit_blocks_));
  buckets_.assign(std::bit_ceil(num_units + 1), kNone);
  for (std::size_t i = num_units; i-- > 0;) {
    units_[i].next = free_unit_;
    free_unit_ = static_cast<int32_t>(i);
  }
  snapshots_.resize(static_cast<std::size_t>(options.num_snapshots));
  for (std::size_t i = snapshots_.size(); i-- > 0;) free_snapshots_.push_back(static_cast<int32_t>(i));
  evicted_keys_.resize(kRememberedKeys);
  first_keys_.resize(kRememberedKeys);
  path_.reserve(num_units);
  candidates_.reserve(num_units);
}

CachedPrefix PrefixCache::find(const Request& request, std::vector<int32_t>& blocks) {
  FERRY_CHECK(blocks.empty());
  CachedPrefix prefix;
  prefix.is_growing = true;
  if (options_.has_states) choose_snapshot_places(request, unit_tokens_, options_.message_start, prefix.places);
  match(request, prefix);
  if (!request.needs_all_rows()) resume(prefix, blocks);
  prefix.miss = miss_of(request, prefix);
  const auto is_passed = [&](const SnapshotPlace& place) { return place.num_tokens <= prefix.num_tokens; };
  std::erase_if(prefix.places, is_passed);
  return prefix;
}

/// Finds the units that are there, and the keys of the places. Where keys and values are known further than a state is, others
/// part from this prompt, and will again: that is a place, too.
void PrefixCache::match(const Request& request, CachedPrefix& prefix) {
  path_.clear();
  const int64_t num_usable = (std::ssize(request.prompt) - 1) / unit_tokens_;
  const int64_t last_place = prefix.places.empty() ? 0 : prefix.places.back().num_tokens / unit_tokens_;
  auto place = prefix.places.begin();
  uint64_t key = options_.hash_seed, known_key = 0;
  for (int64_t unit = 0; unit < num_usable; ++unit) {
    const bool is_matching = std::ssize(path_) == unit;
    if (!is_matching && unit >= last_place) break;
    const std::span<const TokenId> tokens = tokens_of(request, unit);
    const Digest& digest = digest_of(request, unit);
    key = key_of(key, tokens, digest);
    if (is_matching) {
      const int32_t found = child(path_.empty() ? kRoot : path_.back(), key, tokens, digest);
      if (found == kNone) {
        next_key_ = key;
      } else {
        path_.push_back(found);
        known_key = key;
      }
    }
    if (place != prefix.places.end() && place->num_tokens == (unit + 1) * unit_tokens_) (place++)->key = key;
  }
  if (options_.has_states && !path_.empty())
    add_snapshot_place(prefix.places, {.num_tokens = std::ssize(path_) * unit_tokens_, .key = known_key});
}

/// Begins behind the last unit that has all that is needed.
void PrefixCache::resume(CachedPrefix& prefix, std::vector<int32_t>& blocks) {
  const auto is_away = [this](int32_t unit) { return !at(unit).has_blocks; };
  auto num_units = static_cast<std::size_t>(std::ranges::find_if(path_, is_away) - path_.begin());
  while (options_.has_states && num_units > 0 && at(path_[num_units - 1]).snapshot == kNone) --num_units;
  if (num_units == 0) return;
  prefix.has_pairs = true;
  for (const int32_t unit : std::span(path_).first(num_units)) {
    const std::span<const int32_t> shared = blocks_of(unit);
    pool_.share(shared);
    blocks.insert(blocks.end(), shared.begin(), shared.end());
    prefix.has_pairs = prefix.has_pairs && at(unit).has_pairs;
  }
  prefix.unit = path_[num_units - 1];
  prefix.serial = at(prefix.unit).serial;
  prefix.snapshot = at(prefix.unit).snapshot;
  if (prefix.snapshot != kNone) ++snapshots_[static_cast<std::size_t>(prefix.snapshot)].num_readers;
  prefix.num_units = static_cast<int64_t>(num_units);
  prefix.num_tokens = prefix.num_units * unit_tokens_;
  prefix.num_blocks = std::ssize(blocks);
}

CacheMiss PrefixCache::miss_of(const Request& request, const CachedPrefix& prefix) const {
  const int64_t num_usable = (std::ssize(request.prompt) - 1) / unit_tokens_;
  if (num_usable == 0) return CacheMiss::kShort;
  if (request.needs_all_rows()) return CacheMiss::kPromptLogprobs;
  if (prefix.num_units == num_usable) return CacheMiss::kNone;
  if (std::ssize(path_) > prefix.num_units) {
    const auto had_snapshot = [&](int32_t unit) { return at(unit).had_snapshot; };
    const auto behind = std::span(path_).subspan(static_cast<std::size_t>(prefix.num_units));
    return std::ranges::any_of(behind, had_snapshot) ? CacheMiss::kEvicted : CacheMiss::kNoSnapshot;
  }
  if (is_remembered(evicted_keys_, next_key_)) return CacheMiss::kEvicted;
  const bool is_salted = prefix.num_units == 0 && digest_of(request, 0) != Digest{};
  const uint64_t plain_key = key_of(options_.hash_seed, tokens_of(request, 0), {});
  return is_salted && is_remembered(first_keys_, plain_key) ? CacheMiss::kSalt : CacheMiss::kNew;
}

void PrefixCache::count(const Request& request, const CachedPrefix& prefix) {
  ++clock_;
  ++load_.num_queries;
  load_.num_query_tokens += std::ssize(request.prompt);
  load_.num_cached_tokens += prefix.num_tokens;
  ++load_.misses[static_cast<std::size_t>(prefix.miss)];
  if (prefix.snapshot != kNone) snapshots_[static_cast<std::size_t>(prefix.snapshot)].last_used = clock_;
  for (int32_t unit = prefix.unit; unit != kRoot; unit = at(unit).parent) at(unit).last_used = clock_;
}

void PrefixCache::let_go_of_snapshot(CachedPrefix& prefix) {
  if (prefix.snapshot == kNone) return;
  Snapshot& read = snapshots_[static_cast<std::size_t>(prefix.snapshot)];
  if (--read.num_readers == 0 && read.unit == kNone) free_snapshots_.push_back(prefix.snapshot);
  prefix.snapshot = kNone;
}

void PrefixCache::extend(const Request& request, CachedPrefix& prefix, std::span<const int32_t> blocks, int64_t num_computed) {
  const int64_t end = std::min(num_computed, std::ssize(request.prompt)) / unit_tokens_;
  if (!prefix.is_growing || prefix.num_units >= end) return;
  prefix.is_growing = is_valid(prefix);
  uint64_t key = prefix.unit == kRoot || !prefix.is_growing ? options_.hash_seed : at(prefix.unit).key;
  while (prefix.is_growing && prefix.num_units < end) {
    const std::span<const TokenId> tokens = tokens_of(request, prefix.num_units);
    const Digest& digest = digest_of(request, prefix.num_units);
    if (prefix.num_units == 0) remember(first_keys_, key_of(options_.hash_seed, tokens, {}));
    key = key_of(key, tokens, digest);
    int32_t unit = child(prefix.unit, key, tokens, digest);
    if (unit == kNone) {
      const auto first = static_cast<std::size_t>(prefix.num_units * unit_blocks_);
      unit = add(prefix.unit, key, tokens, digest, blocks.subspan(first, static_cast<std::size_t>(unit_blocks_)));
    } else if (!at(unit).has_blocks) {
      hold(unit,
           blocks.subspan(static_cast<std::size_t>(prefix.num_units * unit_blocks_), static_cast<std::size_t>(unit_blocks_)));
    }
    at(unit).last_used = clock_;
    prefix.unit = unit;
    prefix.serial = at(unit).serial;
    ++prefix.num_units;
  }
}

void PrefixCache::note_pairs(const CachedPrefix& prefix, std::span<const int32_t> blocks, int64_t num_pairs) {
  if (!prefix.is_growing || !is_valid(prefix)) return;
  for (int32_t unit = prefix.unit; unit != kRoot; unit = at(unit).parent) {
    if (at(unit).num_units * unit_tokens_ > num_pairs) continue;
    const auto first = static_cast<std::size_t>((at(unit).num_units - 1) * unit_blocks_);
    if (at(unit).has_pairs || blocks_of(unit).front() != blocks[first]) return;
    at(unit).has_pairs = true;
  }
}

int32_t PrefixCache::reserve(const SnapshotPlace& place, int64_t previous_tokens) {
  if (has_snapshot(place.key)) return kNone;
  const int64_t age = place.is_on_grid ? kGridAge : 0;
  const double value = static_cast<double>(place.num_tokens - previous_tokens) / static_cast<double>(1 + age);
  return take_snapshot({.key = place.key, .is_reserved = true, .last_used = clock_ - age}, value);
}

/// A free one, or that of the least value, if that is less than `value`, for `reserved`.
int32_t PrefixCache::take_snapshot(const Snapshot& reserved, double value) {
  if (free_snapshots_.empty()) {
    int32_t least = kNone;
    for (std::size_t i = 0; i < snapshots_.size(); ++i) {
      const auto candidate = static_cast<int32_t>(i);
      const Snapshot& kept = snapshots_[i];
      if (kept.unit == kNone || kept.num_readers > 0 || at(kept.unit).num_expecting > 0) continue;
      if (least == kNone || value_of(candidate) < value_of(least)) least = candidate;
    }
    if (least == kNone || value_of(least) >= value) return kNone;
    ++load_.num_evicted_snapshots;
    spill_state(least);
    free_snapshot(least);
  }
  const int32_t snapshot = free_snapshots_.back();
  free_snapshots_.pop_back();
  snapshots_[static_cast<std::size_t>(snapshot)] = reserved;
  return snapshot;
}

void PrefixCache::keep(int32_t snapshot, const CachedPrefix& prefix, int64_t num_tokens) {
  int32_t unit = prefix.is_growing && is_valid(prefix) ? prefix.unit : kRoot;
  while (unit != kRoot && at(unit).num_units * unit_tokens_ > num_tokens) unit = at(unit).parent;
  const bool is_there = unit != kRoot && at(unit).num_units * unit_tokens_ == num_tokens;
  if (!is_there || at(unit).snapshot != kNone) return drop(snapshot);
  assign(snapshot, unit);
  ++load_.num_saved_snapshots;
}

/// One that was reserved.
void PrefixCache::assign(int32_t snapshot, int32_t unit) {
  Snapshot& kept = snapshots_[static_cast<std::size_t>(snapshot)];
  kept.unit = unit;
  kept.is_reserved = false;
  at(unit).snapshot = snapshot;
  at(unit).had_snapshot = true;
}

void PrefixCache::drop(int32_t snapshot) {
  FERRY_CHECK(snapshots_[static_cast<std::size_t>(snapshot)].is_reserved) << "snapshot " << snapshot;
  free_snapshot(snapshot);
}

void PrefixCache::distrust(const Request& request) {
  CachedPrefix prefix;
  match(request, prefix);
  if (!path_.empty()) forget(path_.front());
}

/// Leaves go first, and then what has become one.
void PrefixCache::make_room(int64_t num_blocks) {
  if (pool_.num_free() >= num_blocks || pool_.num_idle() == 0) return;
  const int64_t wanted = std::max(num_blocks, std::min(pool_.num_free() + kUnitsAtOnce * unit_blocks_, pool_.num_total() / 8));
  candidates_.clear();
  for (std::size_t i = 0; i < units_.size(); ++i) {
    if (units_[i].has_blocks && units_[i].num_children == 0) push(static_cast<int32_t>(i));
  }
  while (pool_.num_free() < wanted && pool_.num_idle() > 0) {
    if (pool_.num_free() >= num_blocks && candidates_.front().order > 0) return;  // what is of use goes in need alone
    std::ranges::pop_heap(candidates_, std::greater<>());
    const int32_t unit = candidates_.back().unit, parent = at(unit).parent;
    candidates_.pop_back();
    evict(unit);
    if (parent != kRoot && at(parent).num_children == 0) push(parent);
  }
}

PrefixCacheLoad PrefixCache::load() const {
  PrefixCacheLoad load = load_;
  load.num_idle_blocks = pool_.num_idle();
  load.num_snapshots = std::ssize(snapshots_) - std::ssize(free_snapshots_);
  load.snapshot_bytes = load.num_snapshots * options_.snapshot_bytes;
  load.file_capacity_bytes = options_.file.num_pages * options_.file.page_bytes;
  if (file_) load.file_bytes = (file_->num_total() - file_->num_free()) * options_.file.page_bytes;
  return load;
}

void PrefixCache::check() const {
  int64_t num_units = 0, num_snapshots = 0, num_idle = 0;
  std::vector<int32_t> num_children(units_.size(), 0);
  for (std::size_t i = 0; i < units_.size(); ++i) {
    const Unit& unit = units_[i];
    if (!unit.is_there) continue;
    const bool has_parent = unit.parent != kRoot;
    FERRY_CHECK(!has_parent || at(unit.parent).is_there) << "unit " << i << " has lost unit " << unit.parent;
    FERRY_CHECK_EQ(unit.num_units, 1 + (has_parent ? at(unit.parent).num_units : 0));
    FERRY_CHECK(unit.has_blocks || unit.blocks_record != kNone) << "unit " << i << " is nowhere";
    FERRY_CHECK(unit.has_blocks || unit.snapshot == kNone) << "unit " << i << " has a state alone";
    if (!unit.has_blocks) continue;
    ++num_units;
    FERRY_CHECK(!has_parent || at(unit.parent).has_blocks)
        << "unit " << unit.parent << " is not in memory, unit " << i << " is";
    if (has_parent) ++num_children[static_cast<std::size_t>(unit.parent)];
    for (const int32_t block : blocks_of(static_cast<int32_t>(i))) num_idle += pool_.is_idle(block) ? 1 : 0;
    if (unit.snapshot == kNone) continue;
    ++num_snapshots;
    FERRY_CHECK_EQ(snapshots_[static_cast<std::size_t>(unit.snapshot)].unit, static_cast<int32_t>(i));
  }
  for (std::size_t i = 0; i < units_.size(); ++i) {
    FERRY_CHECK(!units_[i].is_there || units_[i].num_children == num_children[i])
        << "unit " << i << " has " << num_children[i] << " children, not " << units_[i].num_children;
  }
  FERRY_CHECK_EQ(num_units, load_.num_units);
  FERRY_CHECK_EQ(num_idle, pool_.num_idle());
  const auto is_apart = [](const Snapshot& snapshot) {
    return snapshot.is_reserved || (snapshot.unit == kNone && snapshot.num_readers > 0);
  };
  FERRY_CHECK_EQ(num_snapshots + std::ranges::count_if(snapshots_, is_apart) + std::ssize(free_snapshots_),
                 std::ssize(snapshots_));
  if (file_) check_file();
}

std::span<const TokenId> PrefixCache::tokens_of(const Request& request, int64_t unit) const {
  return std::span(request.prompt)
      .subspan(static_cast<std::size_t>(unit * unit_tokens_), static_cast<std::size_t>(unit_tokens_));
}

uint64_t PrefixCache::key_of(uint64_t parent_key, std::span<const TokenId> tokens, const Digest& digest) const {
  uint64_t key = parent_key + 0x9e3779b97f4a7c15U;
  for (const TokenId token : tokens) key = mix(key ^ static_cast<uint64_t>(token));
  for (const std::byte byte : digest) key = key * 0x100000001b3U ^ static_cast<uint64_t>(byte);
  return mix(key) & options_.hash_mask;
}

/// The unit behind `parent` that has these very tokens and contents; kNone if it is not there.
int32_t PrefixCache::child(int32_t parent, uint64_t key, std::span<const TokenId> tokens, const Digest& digest) const {
  for (int32_t unit = bucket_of(key); unit != kNone; unit = at(unit).next) {
    if (at(unit).key != key || at(unit).parent != parent || at(unit).digest != digest) continue;
    if (std::ranges::equal(tokens, std::span(tokens_).subspan(static_cast<std::size_t>(unit * unit_tokens_), tokens.size())))
      return unit;
  }
  return kNone;
}

/// Whether a unit of this key has one, or will have when the step is done. Another unit of the same key costs a snapshot alone.
bool PrefixCache::has_snapshot(uint64_t key) const {
  const auto is_of_key = [&](const Snapshot& snapshot) {
    return (snapshot.is_reserved ? snapshot.key : snapshot.unit != kNone ? at(snapshot.unit).key : ~key) == key;
  };
  return std::ranges::any_of(snapshots_, is_of_key);
}

int32_t PrefixCache::add(int32_t parent, uint64_t key, std::span<const TokenId> tokens, const Digest& digest,
                         std::span<const int32_t> blocks) {
  FERRY_CHECK(free_unit_ != kNone) << "more units than blocks for them";
  const int32_t unit = free_unit_;
  free_unit_ = at(unit).next;
  at(unit) = {.key = key,
              .parent = parent,
              .next = bucket_of(key),
              .serial = at(unit).serial,
              .num_units = 1 + (parent == kRoot ? 0 : at(parent).num_units),
              .is_there = true,
              .digest = digest};
  bucket_of(key) = unit;
  int32_t& first = parent == kRoot ? first_unit_ : at(parent).first_child;
  at(unit).next_sibling = first;
  if (first != kNone) at(first).previous_sibling = unit;
  first = unit;
  std::ranges::copy(tokens, tokens_.begin() + unit * unit_tokens_);
  hold(unit, blocks);
  return unit;
}

/// The unit's keys and values are in these blocks, too, or again.
void PrefixCache::hold(int32_t unit, std::span<const int32_t> blocks) {
  Unit& held = at(unit);
  held.has_blocks = true;
  held.has_pairs = false;
  if (held.parent != kRoot) ++at(held.parent).num_children;
  std::ranges::copy(blocks, blocks_.begin() + unit * unit_blocks_);
  pool_.keep(blocks);
  ++load_.num_units;
}

/// Takes a unit out of memory that no other one there follows. What is of use goes to the file; of what is nowhere nothing is
/// known any more.
void PrefixCache::evict(int32_t unit) {
  FERRY_CHECK_EQ(at(unit).num_children, 0);
  ++at(unit).num_expecting;  // making room in the file leaves it alone
  if (const int32_t snapshot = at(unit).snapshot; snapshot != kNone) {
    spill_state(snapshot);
    free_snapshot(snapshot);
    ++load_.num_evicted_snapshots;
  }
  const bool is_in_file = spill_blocks(unit);
  --at(unit).num_expecting;
  leave_memory(unit);
  if (!is_in_file) forget(unit);
}

/// Its blocks are the pool's again, or those of the sequences that hold them.
void PrefixCache::leave_memory(int32_t unit) {
  pool_.let_go(blocks_of(unit));
  at(unit).has_blocks = false;
  if (at(unit).parent != kRoot) --at(at(unit).parent).num_children;
  --load_.num_units;
  ++load_.num_evicted_units;
}

/// With all that follow it, in memory or in the file alone.
void PrefixCache::forget(int32_t unit) {
  for (int32_t last = unit, parent = unit;; last = parent) {
    while (at(last).first_child != kNone) last = at(last).first_child;
    parent = at(last).parent;
    if (const int32_t snapshot = at(last).snapshot; snapshot != kNone) {
      free_snapshot(snapshot);
      ++load_.num_evicted_snapshots;
    }
    if (at(last).has_blocks) leave_memory(last);
    for (const int32_t record : {at(last).blocks_record, at(last).state_record}) {
      if (record != kNone) file_->remove(record);
    }
    unlink(last);
    if (last == unit) return;
  }
}

/// Out of the tree.
void PrefixCache::unlink(int32_t unit) {
  Unit& removed = at(unit);
  FERRY_CHECK(!removed.has_blocks && removed.first_child == kNone) << "unit " << unit;
  remember(evicted_keys_, removed.key);
  int32_t& first = removed.parent == kRoot ? first_unit_ : at(removed.parent).first_child;
  (removed.previous_sibling == kNone ? first : at(removed.previous_sibling).next_sibling) = removed.next_sibling;
  if (removed.next_sibling != kNone) at(removed.next_sibling).previous_sibling = removed.previous_sibling;
  int32_t* link = &bucket_of(removed.key);
  while (*link != unit) link = &at(*link).next;
  *link = removed.next;
  removed.next = free_unit_;
  free_unit_ = unit;
  removed.is_there = false;
  ++removed.serial;
}

void PrefixCache::free_snapshot(int32_t snapshot) {
  Snapshot& freed = snapshots_[static_cast<std::size_t>(snapshot)];
  if (freed.unit != kNone) at(freed.unit).snapshot = kNone;
  freed = {.num_readers = freed.num_readers};
  if (freed.num_readers == 0) free_snapshots_.push_back(snapshot);
}

/// Tokens that it saves whoever begins there, for each request since it last did so. All are of the same size.
double PrefixCache::value_of(int32_t snapshot) const {
  const Snapshot& valued = snapshots_[static_cast<std::size_t>(snapshot)];
  int32_t previous = at(valued.unit).parent;
  while (previous != kRoot && at(previous).snapshot == kNone) previous = at(previous).parent;
  const int64_t num_units = at(valued.unit).num_units - (previous == kRoot ? 0 : at(previous).num_units);
  return static_cast<double>(num_units * unit_tokens_) / static_cast<double>(1 + clock_ - valued.last_used);
}

PrefixCache::Candidate PrefixCache::candidate(int32_t unit) const {
  const auto last_used = static_cast<double>(at(unit).last_used);
  if (!pool_.is_idle(blocks_of(unit).front())) return {.order = 2, .value = last_used, .unit = unit};
  if (at(unit).num_expecting > 0) return {.order = 1, .value = std::numeric_limits<double>::infinity(), .unit = unit};
  if (!options_.has_states) return {.order = 1, .value = last_used, .unit = unit};
  if (at(unit).snapshot != kNone) return {.order = 1, .value = value_of(at(unit).snapshot), .unit = unit};
  if (!is_of_use(unit)) return {.order = 0, .value = last_used, .unit = unit};
  const auto age = static_cast<double>(clock_ - at(unit).last_used);
  return {.order = 1, .value = static_cast<double>(unit_tokens_) / (1 + age), .unit = unit};
}

void PrefixCache::push(int32_t unit) {
  candidates_.push_back(candidate(unit));
  std::ranges::push_heap(candidates_, std::greater<>());
}

std::span<const int32_t> PrefixCache::blocks_of(int32_t unit) const {
  return std::span(blocks_).subspan(static_cast<std::size_t>(unit * unit_blocks_), static_cast<std::size_t>(unit_blocks_));
}

/// Whether the sequence's last unit is still there, in memory.
bool PrefixCache::is_valid(const CachedPrefix& prefix) const {
  return prefix.unit == kRoot || (at(prefix.unit).serial == prefix.serial && at(prefix.unit).has_blocks);
}

}  // namespace ferry

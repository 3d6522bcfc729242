#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "runtime/schedule/block_pool.h"
#include "runtime/schedule/cached_prefix.h"
#include "runtime/schedule/file_records.h"
#include "runtime/schedule/request.h"

namespace ferry {

struct PrefixCacheOptions {
  bool is_on = false;
  bool has_states = true;                // of the model: a sequence begins only where its state was saved
  int64_t num_snapshots = 0;             // that there is room for; 0 without states
  int64_t snapshot_bytes = 0;            // of each
  std::optional<TokenId> message_start;  // with which every message of a conversation begins
  PrefixFileOptions file;                // for what memory has no room for
  uint64_t hash_seed = 0;
  uint64_t hash_mask = ~uint64_t{0};  // bits of the hash that count; fewer in tests
};

/// Knows which first tokens of prompts have keys and values in blocks of the KV cache, and where the recurrent state behind
/// them was saved: a tree of units of tokens. What is the same is told by the tokens themselves and by digests of pictures and
/// salts; hashes only find it. It knows ids, not the memory behind them.
///
///   root - [system prompt, 64 tokens] - [.., 64]* - [question A, 64] - [answer and question A', 64]*
///                                                 \ [question B, 64]*                                   * has a snapshot
///
/// In a pool of blocks it keeps those of its units (BlockPool::keep), and gives them up when they are needed, units first that
/// no snapshot is behind, then what has the least value. With a file, what is of use goes there, and the tree goes on to know
/// it: of each unit's keys and values, and of its state, there is one in memory, in the file, or both. In front of a unit in
/// memory all are in memory.
///
/// Not thread-safe: the scheduler owns it. Without a file it allocates nothing after construction but what the caller's vectors
/// need.
class PrefixCache {
 public:
  /// Units of `unit_tokens`, a multiple of `block_tokens`, in `pool`, which outlives it.
  PrefixCache(const PrefixCacheOptions& options, int64_t unit_tokens, int64_t block_tokens, BlockPool& pool);

  /// What there is for a request that begins: shares the blocks, appended to `blocks` (empty), and leaves at least one token of
  /// the prompt to compute. The snapshot stays as it is until the caller lets go of it.
  CachedPrefix find(const Request& request, std::vector<int32_t>& blocks);
  /// It did begin.
  void count(const Request& request, const CachedPrefix& prefix);
  void let_go_of_snapshot(CachedPrefix& prefix);

  /// Takes in whole units of the prompt up to `num_computed` tokens, with their `blocks`; one that is there already stays as it
  /// is.
  void extend(const Request& request, CachedPrefix& prefix, std::span<const int32_t> blocks, int64_t num_computed);
  /// What the MTP layer makes of the first `num_pairs` tokens is in the sequence's `blocks`, for good.
  void note_pairs(const CachedPrefix& prefix, std::span<const int32_t> blocks, int64_t num_pairs);

  /// A free snapshot for a place behind `previous_tokens` that have one, or one that is worth less, whose unit then has none.
  /// -1 if there is none, or nothing to save. It must be kept or dropped before the next call of find().
  int32_t reserve(const SnapshotPlace& place, int64_t previous_tokens);
  /// It was saved: it becomes that of the unit which ends behind `num_tokens`, if it has none yet.
  void keep(int32_t snapshot, const CachedPrefix& prefix, int64_t num_tokens);
  void drop(int32_t snapshot);

  /// The logits of a request are not finite, and what it began with or added may be why: forgets its first unit and all that
  /// follow that, in memory and in the file. Sequences that hold their blocks keep them.
  void distrust(const Request& request);

  /// Gives up units until `num_blocks` are free, as many as can be.
  void make_room(int64_t num_blocks);

  bool has_file() const { return file_.has_value(); }
  /// What went to the file since the last call, in order: it must be copied before anything of it is written to again.
  std::vector<FileWrite> take_writes() { return std::exchange(writes_, {}); }
  /// A write that was taken is done, or came to nothing. Behind one that failed nothing more is written.
  void note_written(FileRecordId record, int64_t num_bytes, std::optional<FileDrop> why_not);

  /// What is worth reading before the request begins: nothing if memory has as much. Until it is begun, it keeps nothing.
  std::optional<PrefixLoad> plan_load(const Request& request);
  /// From here to end_load() what it has, and will have, in memory goes last, and what it needs of the file stays there.
  void begin_load(PrefixLoad& load);
  /// The next thing to read; nothing if all was asked for.
  std::optional<FileRead> next_read(PrefixLoad& load);
  /// The first thing that was asked for was read, or not. Where its bytes go, at once and behind what take_writes() gives;
  /// nothing if they are of no use any more.
  std::optional<FileTarget> take_read(PrefixLoad& load, const FileReadResult& result);
  void end_load(PrefixLoad& load);
  /// The request began, with `num_tokens` of its prompt.
  void count_load(const PrefixLoad& load, int64_t num_tokens);
  FileCosts& costs() { return costs_; }

  int64_t unit_tokens() const { return unit_tokens_; }
  PrefixCacheLoad load() const;
  /// Aborts if the tree, the pool and the snapshots do not fit together. For tests.
  void check() const;

 private:
  using Digest = decltype(UnitContent::digest);
  struct Unit {
    uint64_t key = 0;  // of it and all before it
    int32_t parent = -1;
    int32_t next = -1;  // in its bucket, or of the free ones
    uint32_t serial = 0;
    int32_t first_child = -1, next_sibling = -1, previous_sibling = -1;
    int32_t num_children = 0;  // in memory
    int32_t num_units = 0;     // from the root, it included
    int32_t snapshot = -1;
    int32_t blocks_record = -1, state_record = -1;  // in the file
    int32_t num_expecting = 0;                      // loads that it is part of
    int64_t last_used = 0;
    bool is_there = false;
    bool has_blocks = false;  // in memory
    bool had_snapshot = false;
    bool has_pairs = false;
    Digest digest{};
  };
  struct Snapshot {
    int32_t unit = -1;  // -1: free or reserved
    uint64_t key = 0;   // of what is reserved
    bool is_reserved = false;
    int32_t num_readers = 0;  // sequences that are to begin with it
    int64_t last_used = 0;
  };
  struct Candidate {
    int order = 0;  // 0: no snapshot behind it, 1: with one, 2: somebody holds its blocks
    double value = 0;
    int32_t unit = -1;
    bool operator>(const Candidate& other) const { return order != other.order ? order > other.order : value > other.value; }
  };
  struct FileCandidate {
    int order = 0;  // 0: it is in memory as well, 1: no state is behind it, 2: with value
    double value = 0;
    int32_t record = -1;
    bool operator<(const FileCandidate& other) const {
      return order != other.order ? order < other.order : value < other.value;
    }
  };

  std::span<const TokenId> tokens_of(const Request& request, int64_t unit) const;
  uint64_t key_of(uint64_t parent_key, std::span<const TokenId> tokens, const Digest& digest) const;
  int32_t child(int32_t parent, uint64_t key, std::span<const TokenId> tokens, const Digest& digest) const;
  bool has_snapshot(uint64_t key) const;
  void match(const Request& request, CachedPrefix& prefix);
  void resume(CachedPrefix& prefix, std::vector<int32_t>& blocks);
  CacheMiss miss_of(const Request& request, const CachedPrefix& prefix) const;
  int32_t add(int32_t parent, uint64_t key, std::span<const TokenId> tokens, const Digest& digest,
              std::span<const int32_t> blocks);
  void hold(int32_t unit, std::span<const int32_t> blocks);
  void evict(int32_t unit);
  void leave_memory(int32_t unit);
  void forget(int32_t unit);
  void unlink(int32_t unit);
  void free_snapshot(int32_t snapshot);
  double value_of(int32_t snapshot) const;
  Candidate candidate(int32_t unit) const;
  void push(int32_t unit);
  Unit& at(int32_t unit) { return units_[static_cast<std::size_t>(unit)]; }
  const Unit& at(int32_t unit) const { return units_[static_cast<std::size_t>(unit)]; }
  std::span<const int32_t> blocks_of(int32_t unit) const;
  int32_t& bucket_of(uint64_t key) { return buckets_[key & (buckets_.size() - 1)]; }
  int32_t bucket_of(uint64_t key) const { return buckets_[key & (buckets_.size() - 1)]; }
  bool is_valid(const CachedPrefix& prefix) const;
  int32_t take_snapshot(const Snapshot& reserved, double value);
  void assign(int32_t snapshot, int32_t unit);

  // Of the file (prefix_cache_file.cpp):
  bool is_of_use(int32_t unit) const;
  bool spill_blocks(int32_t unit);
  void spill_state(int32_t snapshot);
  bool make_file_room(int64_t num_pages, double value);
  bool free_records(int64_t num_pages, double value);
  void list_file_candidates();
  double file_value_of(int32_t unit, int64_t last_used) const;
  void drop_record(int32_t number, FileDrop why);
  bool is_there(const PrefixLoad::Unit& unit) const;
  std::optional<FileTarget> restore_blocks(int32_t unit, bool has_pairs);
  std::optional<FileTarget> restore_state(int32_t unit);
  void check_file() const;

  const PrefixCacheOptions options_;
  const int64_t unit_tokens_, unit_blocks_;
  BlockPool& pool_;
  std::vector<Unit> units_;
  std::vector<TokenId> tokens_;      // [units, unit_tokens]
  std::vector<int32_t> blocks_;      // [units, unit_blocks]
  std::vector<int32_t> buckets_;     // a power of 2: the first unit of each, or -1
  int32_t first_unit_ = -1;          // of those that begin prompts
  int32_t free_unit_ = -1;           // the first of the free ones
  std::vector<Snapshot> snapshots_;  // [num_snapshots]
  std::vector<int32_t> free_snapshots_;
  std::vector<uint64_t> evicted_keys_;  // of late, by key: what was there once
  std::vector<uint64_t> first_keys_;    // likewise of first units, whatever their salt
  // Of the request that is looked up:
  std::vector<int32_t> path_;          // its units that are there
  uint64_t next_key_ = 0;              // of the one behind them
  std::vector<Candidate> candidates_;  // a heap
  int64_t clock_ = 0;                  // requests that began
  PrefixCacheLoad load_;

  std::optional<FileRecords> file_;
  bool is_writing_ = false;        // until a write fails
  std::vector<FileWrite> writes_;  // not taken yet
  std::vector<FileCandidate> file_candidates_;
  FileCosts costs_;
};

}  // namespace ferry

#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <vector>

#include "runtime/schedule/file_records.h"

namespace ferry {

/// Why a request did not begin as late in its prompt as it could have.
enum class CacheMiss : uint8_t {
  kNone,            // it did
  kShort,           // its prompt is no longer than a unit
  kNew,             // no request had these tokens before
  kNoSnapshot,      // keys and values were there, but no state behind them
  kEvicted,         // what was there had to make room
  kSalt,            // only requests with another salt had these tokens
  kPromptLogprobs,  // it asks for logits of its prompt
  kFile,            // what was there was in the file, which could not be read
};
inline constexpr int kNumCacheMisses = 8;

/// "none", "short", "new", "no_snapshot", "evicted", "salt", "prompt_logprobs", "file".
const char* cache_miss_name(CacheMiss miss);

/// What load reports show of a prefix cache. Sums are since the start.
struct PrefixCacheLoad {
  int64_t num_queries = 0;        // requests that were looked up
  int64_t num_query_tokens = 0;   // of their prompts
  int64_t num_cached_tokens = 0;  // of these, which did not have to be computed
  int64_t num_units = 0;          // now
  int64_t num_idle_blocks = 0;    // now: of KV blocks that no sequence holds
  int64_t num_snapshots = 0;      // now
  int64_t snapshot_bytes = 0;     // now
  int64_t num_saved_snapshots = 0;
  int64_t num_evicted_units = 0, num_evicted_snapshots = 0;
  std::array<int64_t, kNumCacheMisses> misses{};  // requests by CacheMiss

  // Of the file behind it, if there is one:
  int64_t file_capacity_bytes = 0;  // 0: there is none
  int64_t file_bytes = 0;           // now: of what it holds
  int64_t num_file_hits = 0;        // requests that began later because of it
  int64_t num_file_tokens = 0;      // by so many tokens of their prompts
  int64_t file_read_bytes = 0, file_written_bytes = 0;
  std::array<int64_t, kNumFileDrops> file_drops{};  // records by FileDrop
};

/// What is read of the file before a request begins: units of its prompt, then the state behind the last one.
struct PrefixLoad {
  struct Unit {
    int32_t unit = -1;
    uint32_t serial = 0;
  };
  std::vector<Unit> units;           // of the prompt from its first one on, those in memory as well
  std::size_t num_passed = 0;        // first of them that are in memory, or asked for
  bool wants_state = false;          // it was not asked for yet
  std::deque<FileRecordId> asked;    // and not answered
  bool is_given_up = false;          // nothing more is asked for
  bool has_failed = false;           // something could not be read
  int64_t num_taken = 0;             // what was read and is in memory now: units and a state
  int64_t num_tokens_in_memory = 0;  // that the request could have begun behind at once
  int64_t num_blocks = 0;            // of all units
  std::chrono::steady_clock::time_point begun;

  bool is_done() const { return asked.empty() && (is_given_up || (num_passed == units.size() && !wants_state)); }
};

/// Where in a prompt a state shall be saved.
struct SnapshotPlace {
  int64_t num_tokens = 0;   // in front of it
  uint64_t key = 0;         // of the unit that ends there
  bool is_on_grid = false;  // one of many of a long prompt, which nothing but their distance speaks for
};

/// How a sequence stands to the prefix cache.
struct CachedPrefix {
  int64_t num_tokens = 0;  // first of the prompt, which were there when it began
  int64_t num_blocks = 0;  // theirs
  int32_t snapshot = -1;   // of the state behind them, until it is restored
  bool has_pairs = false;  // their blocks have what the MTP layer makes of them, too
  CacheMiss miss = CacheMiss::kNone;

  bool is_growing = false;            // units that it computes become the cache's
  int32_t unit = -1;                  // the last one of its prompt that is there, as the cache numbers them; -1: none
  uint32_t serial = 0;                // of that
  int64_t num_units = 0;              // up to it
  std::vector<SnapshotPlace> places;  // behind its first rows, ascending
};

}  // namespace ferry

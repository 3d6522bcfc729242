#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/schedule/prefix_cache.h"

// What a PrefixCache has its file hold, with nothing behind the numbers.

namespace ferry {
namespace {

constexpr int64_t kFileUnit = 4, kFileBlock = 2;

/// Memory for three units and one state, unless a test says otherwise; a page holds either.
class FileFixture {
 public:
  explicit FileFixture(int64_t num_pages, int64_t num_blocks = 6, bool has_states = true)
      : pool(num_blocks),
        cache({.is_on = true,
               .has_states = has_states,
               .num_snapshots = has_states ? 1 : 0,
               .snapshot_bytes = 10,
               .file = {.num_pages = num_pages, .page_bytes = 16, .unit_pages = 1, .snapshot_pages = has_states ? 1 : 0}},
              kFileUnit, kFileBlock, pool) {}

  /// Reads what is worth it, begins, computes the prompt and lets go. What it began with.
  CachedPrefix run(TokenId first, int64_t num_tokens, bool is_readable = true) {
    Request request;
    for (int64_t i = 0; i < num_tokens; ++i) request.prompt.push_back(static_cast<TokenId>(i == 0 ? first : i));
    std::optional<PrefixLoad> load = cache.plan_load(request);
    if (load) read(*load, is_readable);
    std::vector<int32_t> blocks;
    CachedPrefix prefix = cache.find(request, blocks);
    const CachedPrefix begun = prefix;
    cache.count(request, prefix);
    if (load) cache.count_load(*load, prefix.num_tokens);
    if (load) cache.end_load(*load);
    cache.let_go_of_snapshot(prefix);
    const int64_t num_blocks = (num_tokens + kFileBlock - 1) / kFileBlock - std::ssize(blocks);
    cache.make_room(num_blocks);
    EXPECT_TRUE(pool.allocate(num_blocks, blocks));
    const SnapshotPlace* place = prefix.places.empty() ? nullptr : &prefix.places.back();
    const int32_t snapshot = place == nullptr ? -1 : cache.reserve(*place, prefix.num_tokens);
    cache.extend(request, prefix, blocks, num_tokens);
    if (snapshot >= 0) cache.keep(snapshot, prefix, place->num_tokens);
    pool.release(blocks);
    take_writes();
    cache.check();
    return begun;
  }
  void read(PrefixLoad& load, bool is_readable) {
    cache.begin_load(load);
    while (const std::optional<FileRead> next = cache.next_read(load)) {
      const std::optional<FileTarget> target = cache.take_read(load, {.is_good = is_readable, .num_bytes = 16});
      EXPECT_EQ(target.has_value(), is_readable);
      take_writes();
      cache.check();
    }
    EXPECT_TRUE(load.is_done());
  }
  void take_writes() {
    for (const FileWrite& write : cache.take_writes()) writes.push_back(write);
  }
  int64_t drops(FileDrop why) const { return cache.load().file_drops[static_cast<std::size_t>(why)]; }

  BlockPool pool;
  PrefixCache cache;
  std::vector<FileWrite> writes;
};

TEST(PrefixCacheFile, HoldsWhatMemoryGaveUp) {
  FileFixture f(100);
  EXPECT_EQ(f.run(1000, 11).num_tokens, 0);
  EXPECT_TRUE(f.writes.empty()) << "there was room";
  EXPECT_EQ(f.run(2000, 11).num_tokens, 0);
  ASSERT_EQ(f.writes.size(), 3U) << "two units and a state";
  EXPECT_EQ(f.cache.load().file_bytes, 48);
  EXPECT_EQ(f.run(1000, 11).num_tokens, 8);
  EXPECT_EQ(f.run(2000, 12).num_tokens, 8);
  EXPECT_EQ(f.writes.size(), 6U) << "what is in the file already is not written again";
  const PrefixCacheLoad load = f.cache.load();
  EXPECT_EQ(load.num_file_hits, 2);
  EXPECT_EQ(load.num_file_tokens, 16);
  EXPECT_EQ(load.file_read_bytes, 6 * 16);
  EXPECT_EQ(load.num_cached_tokens, 16);
}

TEST(PrefixCacheFile, WithoutStatesEveryUnitWillDo) {
  FileFixture f(100, 6, false);
  f.run(1000, 11);
  f.run(2000, 11);
  EXPECT_EQ(f.writes.size(), 2U);
  EXPECT_EQ(f.run(1000, 8).num_tokens, 4);
}

TEST(PrefixCacheFile, IsBoundedAndKeepsWhatIsOfUse) {
  FileFixture f(6);
  for (const TokenId first : {1000, 2000, 3000, 1000, 4000, 1000, 5000}) f.run(first, 11);
  EXPECT_LE(f.cache.load().file_bytes, 6 * 16);
  EXPECT_GT(f.drops(FileDrop::kReplaced), 0);
  EXPECT_EQ(f.run(1000, 11).num_tokens, 8) << "often of use";
  EXPECT_EQ(f.run(2000, 11).num_tokens, 0) << "long ago";
}

TEST(PrefixCacheFile, WhatCannotBeReadIsForgotten) {
  FileFixture f(100);
  f.run(1000, 11);
  f.run(2000, 11);
  const CachedPrefix begun = f.run(1000, 11, false);
  EXPECT_EQ(begun.num_tokens, 0);
  EXPECT_EQ(f.drops(FileDrop::kUnreadable), 1);
  EXPECT_EQ(f.cache.load().num_file_hits, 0);
  f.run(2000, 11);
  EXPECT_EQ(f.run(1000, 11).num_tokens, 8) << "it was computed and written anew";
}

TEST(PrefixCacheFile, WhatIsDistrustedGoesFromTheFile) {
  FileFixture f(100);
  f.run(1000, 11);
  f.run(2000, 11);
  ASSERT_GT(f.cache.load().file_bytes, 0) << "the first prompt is in the file";
  Request request;
  for (int64_t i = 0; i < 11; ++i) request.prompt.push_back(static_cast<TokenId>(i == 0 ? 1000 : i));
  f.cache.distrust(request);
  f.cache.check();
  EXPECT_EQ(f.cache.load().file_bytes, 0);
  EXPECT_EQ(f.run(1000, 11).num_tokens, 0);
  EXPECT_EQ(f.run(2000, 11).num_tokens, 8) << "others stay";
}

TEST(PrefixCacheFile, BehindAWriteThatFailedNothingIsWritten) {
  FileFixture f(100);
  f.run(1000, 11);
  f.run(2000, 11);
  ASSERT_EQ(f.writes.size(), 3U);
  f.cache.note_written(f.writes[0].record, 0, std::nullopt);
  f.cache.note_written(f.writes[1].record, 0, FileDrop::kWriteFailed);
  f.cache.note_written(f.writes[2].record, 0, FileDrop::kWriteFailed);
  f.cache.check();
  EXPECT_GE(f.drops(FileDrop::kWriteFailed), 1);
  EXPECT_EQ(f.run(1000, 11).num_tokens, 0);
  f.run(2000, 11);
  EXPECT_EQ(f.writes.size(), 3U);
}

TEST(PrefixCacheFile, IsReadWhereThatIsQuickerThanComputing) {
  FileFixture f(100);
  f.run(1000, 11);
  f.run(2000, 11);
  f.cache.costs().add_read(16, 1);
  f.cache.costs().add_prefill(8, 1);
  EXPECT_EQ(f.run(1000, 11).num_tokens, 0) << "48 bytes take longer than 8 tokens";
  f.cache.costs().add_prefill(1, 1000);
  EXPECT_EQ(f.run(2000, 11).num_tokens, 8);
}

TEST(PrefixCacheFile, ARecordIsNotTheNextOneOfItsNumber) {
  FileRecords records(3);
  const int32_t first = records.add(2, 7, false);
  const FileRecordId id = records.id_of(first);
  EXPECT_TRUE(records.is_there(id));
  EXPECT_EQ(records.num_free(), 1);
  records.remove(first);
  EXPECT_FALSE(records.is_there(id));
  EXPECT_EQ(records.add(3, 8, true), first);
  EXPECT_FALSE(records.is_there(id));
  EXPECT_TRUE(records.is_there(records.id_of(first)));
  EXPECT_EQ(records.num_free(), 0);
}

}  // namespace
}  // namespace ferry

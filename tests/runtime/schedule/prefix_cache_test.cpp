#include "runtime/schedule/prefix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace ferry {
namespace {

constexpr int64_t kUnit = 4, kBlock = 2;

Request request_of(std::vector<TokenId> prompt, int salt = 0) {
  Request request;
  request.prompt = std::move(prompt);
  if (salt != 0) request.unit_contents = {{.unit = 0, .digest = {static_cast<std::byte>(salt)}}};
  return request;
}

/// Tokens 1, 2, 3, … up to the unit that `branch` is in, `branch` in it, and so on from there.
std::vector<TokenId> prompt_of(int64_t num_tokens, int64_t shared = 0, TokenId branch = 0) {
  std::vector<TokenId> prompt;
  for (int64_t i = 0; i < num_tokens; ++i) prompt.push_back(static_cast<TokenId>(i + (i < shared ? 0 : 1000 * branch)));
  return prompt;
}

/// A cache and its pool, and sequences of which only what it needs is done.
class Fixture {
 public:
  explicit Fixture(int64_t num_blocks = 64, int64_t num_snapshots = 8, bool has_states = true,
                   uint64_t hash_mask = ~uint64_t{0})
      : pool(num_blocks),
        cache({.is_on = true,
               .has_states = has_states,
               .num_snapshots = num_snapshots,
               .snapshot_bytes = 10,
               .hash_mask = hash_mask},
              kUnit, kBlock, pool) {}

  /// Begins, computes the prompt, saves what there is to save, and lets go of its blocks. What it began with.
  CachedPrefix run(const Request& request) {
    std::vector<int32_t> blocks;
    CachedPrefix prefix = cache.find(request, blocks);
    const CachedPrefix begun = prefix;
    cache.count(request, prefix);
    cache.let_go_of_snapshot(prefix);
    const int64_t num_blocks = (std::ssize(request.prompt) + kBlock - 1) / kBlock - std::ssize(blocks);
    cache.make_room(num_blocks);
    EXPECT_TRUE(pool.allocate(num_blocks, blocks));
    std::vector<std::pair<int64_t, int32_t>> saved;
    int64_t previous = prefix.num_tokens;
    for (const SnapshotPlace& place : prefix.places) {
      const int32_t snapshot = cache.reserve(place, previous);
      if (snapshot >= 0) saved.emplace_back(place.num_tokens, snapshot);
      previous = place.num_tokens;
    }
    cache.extend(request, prefix, blocks, std::ssize(request.prompt));
    for (const auto& [num_tokens, snapshot] : saved) cache.keep(snapshot, prefix, num_tokens);
    pool.release(blocks);
    cache.check();
    return begun;
  }
  int64_t cached(const Request& request) {
    std::vector<int32_t> blocks;
    CachedPrefix prefix = cache.find(request, blocks);
    cache.let_go_of_snapshot(prefix);
    pool.release(blocks);
    return prefix.num_tokens;
  }

  BlockPool pool;
  PrefixCache cache;
};

TEST(PrefixCache, GoesOnBehindTheLastUnitWithAState) {
  Fixture f;
  EXPECT_EQ(f.run(request_of(prompt_of(11))).num_tokens, 0);
  EXPECT_EQ(f.cache.load().num_units, 2) << "whole ones alone";
  EXPECT_EQ(f.cached(request_of(prompt_of(11))), 8);
  EXPECT_EQ(f.cached(request_of(prompt_of(30))), 8);
  EXPECT_EQ(f.cached(request_of(prompt_of(8))), 0) << "a token is left to compute, and at 4 is no snapshot";
  EXPECT_EQ(f.cached(request_of(prompt_of(20, 7, 1))), 0);
}

TEST(PrefixCache, WithoutStatesEveryUnitWillDo) {
  Fixture f(64, 0, false);
  f.run(request_of(prompt_of(11)));
  EXPECT_EQ(f.cached(request_of(prompt_of(8))), 4);
  EXPECT_EQ(f.cached(request_of(prompt_of(9))), 8);
  EXPECT_EQ(f.cached(request_of(prompt_of(20, 7, 1))), 4);
  EXPECT_EQ(f.cache.load().num_snapshots, 0);
}

TEST(PrefixCache, SharesTheBlocksInOrder) {
  Fixture f;
  std::vector<int32_t> blocks;
  const Request request = request_of(prompt_of(9));
  CachedPrefix prefix = f.cache.find(request, blocks);
  ASSERT_TRUE(f.pool.allocate(5, blocks));
  f.cache.extend(request, prefix, blocks, 9);
  f.cache.keep(f.cache.reserve(prefix.places.back(), 0), prefix, 8);
  std::vector<int32_t> shared;
  CachedPrefix second = f.cache.find(request, shared);
  EXPECT_EQ(shared, std::vector<int32_t>(blocks.begin(), blocks.begin() + 4));
  EXPECT_EQ(second.num_blocks, 4);
  EXPECT_EQ(f.pool.num_references(blocks[3]), 2);
  EXPECT_EQ(f.pool.num_references(blocks[4]), 1);
}

TEST(PrefixCache, TokensAndContentsCountAndHashesDoNot) {
  Fixture f(400, 60, true, 0);  // all units have the same key
  for (TokenId branch = 0; branch < 5; ++branch) {
    for (const int salt : {0, 1, 2}) {
      EXPECT_EQ(f.run(request_of(prompt_of(13, 6, branch), salt)).num_tokens, 0) << branch << " " << salt;
    }
  }
  EXPECT_EQ(f.cache.load().num_units, 3 * (1 + 5 * 2));
  Fixture g(400, 60);
  for (TokenId branch = 0; branch < 5; ++branch) {
    for (const int salt : {0, 1, 2}) g.run(request_of(prompt_of(13, 6, branch), salt));
  }
  EXPECT_EQ(g.cache.load().num_units, 3 * (1 + 5 * 2));
  for (TokenId branch = 0; branch < 5; ++branch) {
    for (const int salt : {0, 1, 2})
      EXPECT_EQ(g.cached(request_of(prompt_of(13, 6, branch), salt)), 12) << branch << " " << salt;
    EXPECT_EQ(g.cached(request_of(prompt_of(13, 6, branch), 3)), 0);
  }
}

TEST(PrefixCache, AContentInTheMiddleCounts) {
  Fixture f;
  const auto with_picture = [](int digest) {
    Request request = request_of(prompt_of(17));
    request.unit_contents = {{.unit = 1, .digest = {std::byte{5}}}, {.unit = 2, .digest = {static_cast<std::byte>(digest)}}};
    request.cache_hints = {0, 8, 16};
    return request;
  };
  f.run(with_picture(1));
  EXPECT_EQ(f.cached(with_picture(1)), 16);
  EXPECT_EQ(f.cached(with_picture(2)), 8);
}

TEST(PrefixCache, SaysWhyARequestMissed) {
  Fixture f(32, 1);
  const auto miss_of = [&](const Request& request) { return f.run(request).miss; };
  EXPECT_EQ(miss_of(request_of(prompt_of(4, 0, 9))), CacheMiss::kShort);
  EXPECT_EQ(miss_of(request_of(prompt_of(17))), CacheMiss::kNew);
  EXPECT_EQ(miss_of(request_of(prompt_of(17))), CacheMiss::kNone);
  EXPECT_EQ(miss_of(request_of(prompt_of(17, 10, 1))), CacheMiss::kNoSnapshot);
  EXPECT_EQ(miss_of(request_of(prompt_of(17), 1)), CacheMiss::kSalt);
  Request scored = request_of(prompt_of(17));
  scored.sampling.prompt_logprobs = 0;
  EXPECT_EQ(miss_of(scored), CacheMiss::kPromptLogprobs);
  for (TokenId branch = 2; branch < 8; ++branch) f.run(request_of(prompt_of(41, 0, branch)));
  EXPECT_EQ(miss_of(request_of(prompt_of(17))), CacheMiss::kEvicted);
  const PrefixCacheLoad load = f.cache.load();
  EXPECT_EQ(load.num_queries, 13);
  EXPECT_EQ(load.num_query_tokens, 4 + 6 * 17 + 6 * 41);
  EXPECT_EQ(load.num_cached_tokens, 16);
  int64_t num_misses = 0;
  for (const int64_t count : load.misses) num_misses += count;
  EXPECT_EQ(num_misses, load.num_queries);
}

TEST(PrefixCache, APlaceWhereOthersPartIsSavedOnce) {
  Fixture f;
  f.run(request_of(prompt_of(21)));
  EXPECT_EQ(f.run(request_of(prompt_of(21, 13, 1))).num_tokens, 0);
  EXPECT_EQ(f.run(request_of(prompt_of(21, 13, 2))).num_tokens, 12);
  EXPECT_EQ(f.cache.load().num_saved_snapshots, 4) << "20 three times, and 12";
}

TEST(PrefixCache, TheSnapshotOfLeastValueMakesRoom) {
  Fixture f(200, 2);
  f.run(request_of(prompt_of(41, 0, 1)));
  f.run(request_of(prompt_of(9, 0, 2)));
  f.run(request_of(prompt_of(21, 0, 3)));
  EXPECT_EQ(f.cached(request_of(prompt_of(41, 0, 1))), 40) << "saves the most";
  EXPECT_EQ(f.cached(request_of(prompt_of(9, 0, 2))), 0);
  EXPECT_EQ(f.cached(request_of(prompt_of(21, 0, 3))), 20);
  for (int i = 0; i < 10; ++i) f.run(request_of(prompt_of(21, 0, 3)));
  f.run(request_of(prompt_of(13, 0, 4)));
  EXPECT_EQ(f.cached(request_of(prompt_of(41, 0, 1))), 0) << "it was not asked for";
  EXPECT_EQ(f.cached(request_of(prompt_of(21, 0, 3))), 20);
  EXPECT_EQ(f.cached(request_of(prompt_of(13, 0, 4))), 12);
  f.run(request_of(prompt_of(5, 0, 5)));
  EXPECT_EQ(f.cached(request_of(prompt_of(5, 0, 5))), 0) << "it is worth less than those that are there";
  EXPECT_EQ(f.cache.load().num_evicted_snapshots, 2);
}

TEST(PrefixCache, UnitsBehindTheLastSnapshotGoFirst) {
  Fixture f(40, 8);
  Request early = request_of(prompt_of(33, 0, 1));
  early.cache_hints = {16};  // of 8 units 4 have a snapshot behind them
  f.run(early);
  f.run(request_of(prompt_of(17, 0, 2)));
  EXPECT_EQ(f.pool.num_idle(), 24);
  f.cache.make_room(20);
  EXPECT_EQ(f.cached(early), 16);
  EXPECT_EQ(f.cached(request_of(prompt_of(17, 0, 2))), 16);
  f.cache.check();
  f.cache.make_room(30);
  EXPECT_EQ(f.cached(early), 0) << "it is the older one";
  EXPECT_EQ(f.cached(request_of(prompt_of(17, 0, 2))), 16);
  f.cache.make_room(40);
  EXPECT_EQ(f.pool.num_free(), 40);
  EXPECT_EQ(f.cache.load().num_units, 0);
  EXPECT_EQ(f.cache.load().num_snapshots, 0);
  f.cache.check();
}

TEST(PrefixCache, WhatIsInUseStaysAsLongAsThereIsElse) {
  Fixture f(24, 8);
  f.run(request_of(prompt_of(17, 0, 1)));
  f.run(request_of(prompt_of(17, 0, 2)));
  std::vector<int32_t> blocks;
  CachedPrefix used = f.cache.find(request_of(prompt_of(17, 0, 1)), blocks);
  ASSERT_EQ(used.num_tokens, 16);
  f.cache.make_room(16);
  EXPECT_EQ(f.pool.num_free(), 16);
  EXPECT_EQ(f.cached(request_of(prompt_of(17, 0, 1))), 16);
  f.cache.make_room(24);
  EXPECT_EQ(f.pool.num_free(), 16) << "there are no more";
  f.cache.check();
  f.cache.let_go_of_snapshot(used);
  f.pool.release(blocks);
}

TEST(PrefixCache, ASnapshotThatIsReadIsNotOverwritten) {
  Fixture f(200, 1);
  f.run(request_of(prompt_of(9, 0, 1)));
  std::vector<int32_t> blocks;
  CachedPrefix reader = f.cache.find(request_of(prompt_of(9, 0, 1)), blocks);
  const SnapshotPlace dear{.num_tokens = 1000, .key = 5};
  EXPECT_EQ(f.cache.reserve(dear, 0), -1);
  f.pool.release(blocks);
  f.cache.make_room(200);
  EXPECT_EQ(f.cache.load().num_units, 0);
  EXPECT_EQ(f.cache.reserve(dear, 0), -1) << "its unit is gone, but not its reader";
  f.cache.check();
  f.cache.let_go_of_snapshot(reader);
  const int32_t snapshot = f.cache.reserve(dear, 0);
  EXPECT_EQ(snapshot, 0);
  EXPECT_EQ(f.cache.reserve({.num_tokens = 2000, .key = 5}, 0), -1) << "it is being saved already";
  f.cache.drop(snapshot);
  f.cache.check();
}

TEST(PrefixCache, ASequenceWhoseUnitsWentGrowsNoFurther) {
  Fixture f(64, 8);
  const Request request = request_of(prompt_of(33));
  std::vector<int32_t> blocks;
  CachedPrefix prefix = f.cache.find(request, blocks);
  ASSERT_TRUE(f.pool.allocate(17, blocks));
  f.cache.extend(request, prefix, blocks, 16);
  EXPECT_EQ(prefix.num_units, 4);
  f.run(request_of(prompt_of(9, 0, 7)));
  f.cache.make_room(47);
  EXPECT_EQ(f.pool.num_free(), 47);
  EXPECT_EQ(f.cache.load().num_units, 4) << "its blocks would not become free";
  std::vector<int32_t> all;
  ASSERT_TRUE(f.pool.allocate(47, all));
  f.cache.extend(request, prefix, blocks, 32);
  EXPECT_EQ(f.cache.load().num_units, 8);
  f.cache.keep(f.cache.reserve({.num_tokens = 32, .key = 1}, 0), prefix, 32);
  EXPECT_EQ(f.cache.load().num_snapshots, 1);
  f.cache.check();
}

TEST(PrefixCache, WhatIsDistrustedGoesWithAllThatFollowsIt) {
  Fixture f(64, 8);
  f.run(request_of(prompt_of(33)));
  f.run(request_of(prompt_of(33, 16, 1)));  // parts from it behind four units
  f.run(request_of(prompt_of(33, 0, 2)));   // has nothing in common with them
  std::vector<int32_t> blocks;
  CachedPrefix reader = f.cache.find(request_of(prompt_of(33)), blocks);
  ASSERT_EQ(reader.num_tokens, 32);
  f.cache.distrust(request_of(prompt_of(33, 24, 3)));
  f.cache.check();
  EXPECT_EQ(f.cached(request_of(prompt_of(33))), 0);
  EXPECT_EQ(f.cached(request_of(prompt_of(33, 16, 1))), 0) << "it may begin with what is wrong";
  EXPECT_EQ(f.cached(request_of(prompt_of(33, 0, 2))), 32) << "it cannot";
  f.cache.extend(request_of(prompt_of(33)), reader, blocks, 33);
  EXPECT_EQ(f.cached(request_of(prompt_of(33))), 0) << "who began with it adds nothing";
  f.cache.let_go_of_snapshot(reader);
  f.pool.release(blocks);
  f.cache.check();
  f.cache.distrust(request_of(prompt_of(33, 0, 9)));  // nothing is known of it
  EXPECT_EQ(f.run(request_of(prompt_of(33))).num_tokens, 0);
  EXPECT_EQ(f.cached(request_of(prompt_of(33))), 32) << "computed anew it is of use again";
}

TEST(PrefixCache, PairsAreThoseOfTheirUnitsOwner) {
  Fixture f;
  const Request request = request_of(prompt_of(17));
  std::vector<int32_t> blocks, others;
  CachedPrefix first = f.cache.find(request, blocks), second = f.cache.find(request, others);
  ASSERT_TRUE(f.pool.allocate(9, blocks) && f.pool.allocate(9, others));
  f.cache.extend(request, first, blocks, 16);
  f.cache.extend(request, second, others, 16);  // computed at the same time
  f.cache.keep(f.cache.reserve(first.places.back(), 0), first, 16);
  const auto has_pairs = [&] {
    std::vector<int32_t> shared;
    CachedPrefix found = f.cache.find(request, shared);
    f.cache.let_go_of_snapshot(found);
    f.pool.release(shared);
    return found.has_pairs;
  };
  f.cache.note_pairs(second, others, 16);
  EXPECT_FALSE(has_pairs()) << "they are in blocks that nobody shares";
  f.cache.note_pairs(first, blocks, 15);
  EXPECT_FALSE(has_pairs()) << "one is missing";
  f.cache.note_pairs(first, blocks, 16);
  EXPECT_TRUE(has_pairs());
}

}  // namespace
}  // namespace ferry

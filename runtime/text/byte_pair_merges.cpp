#include "runtime/text/byte_pair_merges.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>

#include "runtime/base/check.h"

namespace ferry {
namespace {

// Tokens; up to here rescanning a short array for the best pair is quicker than keeping a heap of pairs.
constexpr size_t kMaxScanTokens = 40;
constexpr uint32_t kMergesPerCheckIn = 1 << 12;

uint64_t pair_key(TokenId left, TokenId right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
}

}  // namespace

BytePairMerges::BytePairMerges(size_t num_merges)
    : slots_(std::bit_ceil(2 * num_merges + 2)), index_mask_(slots_.size() - 1), max_merges_(num_merges) {}

/// The slot that holds `key`, or the free one where it belongs.
size_t BytePairMerges::slot_index(uint64_t key) const {
  uint64_t hash = key * 0x9E3779B97F4A7C15ULL;  // Fibonacci hashing: 2^64 / golden ratio
  hash ^= hash >> 32;
  size_t i = hash & index_mask_;
  while (slots_[i].key != key && slots_[i].rank != kNoRank) i = (i + 1) & index_mask_;
  return i;
}

void BytePairMerges::add(TokenId left, TokenId right, TokenId merged) {
  FERRY_CHECK_LT(num_added_, max_merges_);
  const uint64_t key = pair_key(left, right);
  slots_[slot_index(key)] = {key, num_added_++, merged};
}

const BytePairMerges::Slot& BytePairMerges::find(TokenId left, TokenId right) const {
  return slots_[slot_index(pair_key(left, right))];
}

void BytePairMerges::apply(std::vector<TokenId>& token_ids, size_t begin, const std::function<void()>& check_in) const {
  const size_t num_tokens = token_ids.size() - begin;
  if (num_tokens < 2) return;
  if (num_tokens <= kMaxScanTokens) {
    apply_by_scan(token_ids, begin);
  } else {
    apply_by_heap(token_ids, begin, check_in);
  }
}

void BytePairMerges::apply_by_scan(std::vector<TokenId>& token_ids, size_t begin) const {
  TokenId* const ids = token_ids.data() + begin;
  size_t num_tokens = token_ids.size() - begin;
  std::array<Slot, kMaxScanTokens> pairs;  // pairs[i] merges ids[i] and ids[i + 1]
  for (size_t i = 0; i + 1 < num_tokens; ++i) pairs[i] = find(ids[i], ids[i + 1]);
  while (num_tokens >= 2) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < num_tokens; ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (pairs[best].rank == kNoRank) break;
    ids[best] = pairs[best].merged;
    std::copy(ids + best + 2, ids + num_tokens, ids + best + 1);
    std::copy(pairs.begin() + static_cast<ptrdiff_t>(best) + 1, pairs.begin() + static_cast<ptrdiff_t>(num_tokens) - 1,
              pairs.begin() + static_cast<ptrdiff_t>(best));
    --num_tokens;
    if (best + 1 < num_tokens) pairs[best] = find(ids[best], ids[best + 1]);
    if (best > 0) pairs[best - 1] = find(ids[best - 1], ids[best]);
  }
  token_ids.resize(begin + num_tokens);
}

void BytePairMerges::apply_by_heap(std::vector<TokenId>& token_ids, size_t begin, const std::function<void()>& check_in) const {
  const size_t num_tokens = token_ids.size() - begin;
  FERRY_CHECK_LT(num_tokens, size_t{UINT32_MAX});
  const auto end = static_cast<uint32_t>(num_tokens);
  TokenId* const ids = token_ids.data() + begin;
  std::vector<uint32_t> next(num_tokens);      // index of the token to the right, `end` for the last one
  std::vector<uint32_t> previous(num_tokens);  // index of the token to the left, `end` for the first one
  std::vector<Slot> pairs(num_tokens);         // how a token merges with the one to its right; no rank if it is gone
  std::vector<uint64_t> heap;                  // rank << 32 | index; an entry whose rank is no longer the pair's is stale
  for (uint32_t i = 0; i < end; ++i) {
    next[i] = i + 1;
    previous[i] = i == 0 ? end : i - 1;
    if (i + 1 < end) pairs[i] = find(ids[i], ids[i + 1]);
    if (pairs[i].rank != kNoRank) heap.push_back((uint64_t{pairs[i].rank} << 32) | i);
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto renew_pair = [&](uint32_t i) {
    pairs[i] = next[i] == end ? Slot{} : find(ids[i], ids[next[i]]);
    if (pairs[i].rank == kNoRank) return;
    heap.push_back((uint64_t{pairs[i].rank} << 32) | i);
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  for (uint32_t num_popped = 1; !heap.empty(); ++num_popped) {
    if (check_in && num_popped % kMergesPerCheckIn == 0) check_in();
    const auto rank = static_cast<uint32_t>(heap.front() >> 32);
    const auto i = static_cast<uint32_t>(heap.front());
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    if (pairs[i].rank != rank) continue;
    const uint32_t gone = next[i];
    ids[i] = pairs[i].merged;
    next[i] = next[gone];
    if (next[i] != end) previous[next[i]] = i;
    pairs[gone] = Slot{};
    renew_pair(i);
    if (previous[i] != end) renew_pair(previous[i]);
  }
  size_t num_left = 0;
  for (uint32_t i = 0; i < end; i = next[i]) ids[num_left++] = ids[i];
  token_ids.resize(begin + num_left);
}

}  // namespace ferry

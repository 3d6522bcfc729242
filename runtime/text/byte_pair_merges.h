#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/base/types.h"

namespace ferry {

/// The merge list of a byte-pair encoding: which two neighbouring tokens become one, and which pair goes first.
///
/// Filled once, then read by any number of threads. An open-addressing table keyed by both ids, because looking a pair up is
/// what encoding spends its time on.
class BytePairMerges {
 public:
  /// Makes room for `num_merges` merges.
  explicit BytePairMerges(size_t num_merges);

  /// Adds the next merge; the first one added has the highest priority. A pair that is added twice gets the later priority
  /// (as Hugging Face's tokenizers does). At most as many merges as the constructor made room for.
  void add(TokenId left, TokenId right, TokenId merged);

  /// Applies the merges to token_ids[begin ‥ end), which are the tokens of the single bytes of one piece: again and again the
  /// pair with the lowest rank, the leftmost first. Shortens the vector. Time is n log n in the number of bytes, and so long a
  /// piece as 41 bytes takes up to 48 bytes of memory for each. `check_in` (if there is one) is called every few thousand
  /// merges; what it throws ends the work, with the vector half done.
  void apply(std::vector<TokenId>& token_ids, size_t begin, const std::function<void()>& check_in = {}) const;

 private:
  static constexpr uint32_t kNoRank = UINT32_MAX;  // of two tokens that do not merge

  struct Slot {
    uint64_t key = UINT64_MAX;  // left << 32 | right
    uint32_t rank = kNoRank;
    TokenId merged = -1;
  };

  const Slot& find(TokenId left, TokenId right) const;
  size_t slot_index(uint64_t key) const;
  void apply_by_scan(std::vector<TokenId>& token_ids, size_t begin) const;
  void apply_by_heap(std::vector<TokenId>& token_ids, size_t begin, const std::function<void()>& check_in) const;

  std::vector<Slot> slots_;  // a power of two of them, at most half of them filled
  uint64_t index_mask_ = 0;
  uint32_t num_added_ = 0;
  size_t max_merges_ = 0;
};

}  // namespace ferry

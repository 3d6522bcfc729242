#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/types.h"

namespace ferry {

/// Prompt lookup: what followed the last tokens of `tokens` when they stood in it before. Looks for the longest suffix of
/// 4 ‥ 2 tokens that has an earlier place and takes the last of its places. `drafts` becomes the `max_drafts` tokens behind
/// it, which repeat from there where the text ends first; empty if there is no such place. Reads the tokens three times at
/// most, and allocates nothing that `drafts` has room for.
void ngram_drafts(std::span<const TokenId> tokens, int64_t max_drafts, std::vector<TokenId>& drafts);

}  // namespace ferry

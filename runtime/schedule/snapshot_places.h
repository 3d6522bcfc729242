#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/schedule/cached_prefix.h"
#include "runtime/schedule/request.h"

namespace ferry {

/// Tokens between two snapshots of a long prompt, and how long that is.
inline constexpr int64_t kSnapshotGrid = 4096;
inline constexpr int64_t kLongPrompt = 8192;

/// Where the state of a prompt's prefill is worth a snapshot, as multiples of `unit_tokens` that leave a token behind them, in
/// ascending order, written to `places` without their keys:
///
/// - in front of the last message, which is what the model is asked to begin: the next turn repeats all before it;
/// - in front of the message before, the last question: it may be asked anew in other words;
/// - in front of the second message: what stands before it, instructions and tools, may be that of many conversations;
/// - every kSnapshotGrid tokens of prompts longer than kLongPrompt.
///
/// Messages begin where the request's hints say, or at tokens `message_start`. In a prompt without any the last multiple of all
/// takes their place: the same prompt may come again.
void choose_snapshot_places(const Request& request, int64_t unit_tokens, std::optional<TokenId> message_start,
                            std::vector<SnapshotPlace>& places);

/// Adds a place, if it is not there.
void add_snapshot_place(std::vector<SnapshotPlace>& places, SnapshotPlace place);

}  // namespace ferry

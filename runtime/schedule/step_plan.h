#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/schedule/sequence.h"

namespace ferry {

inline constexpr int32_t kNoSnapshot = -1;

/// One sequence's share of a step, in the batch's rows [first_row, first_row + num_rows): tokens of sequence->tokens from
/// first_token on, then the first num_drafts of sequence->drafts.
///
/// What becomes of the slot's recurrent state, in this order: for a sequence that begins it becomes zeros, or what a snapshot
/// of its first tokens holds; it takes in num_replayed rows of those that the sequence's last step held back; it takes in this
/// step's tokens, and is saved on the way (StateSnapshot); the drafts' rows are held back beside it. Keys and values need no
/// such care: a draft that was wrong is overwritten by the token that takes its position.
struct StepEntry {
  Sequence* sequence = nullptr;
  int64_t first_row = 0;
  int64_t first_token = 0;  // also the number of tokens in the caches
  int64_t num_rows = 0;
  int64_t num_drafts = 0;
  bool samples = false;            // the logits of its last 1 + num_drafts rows choose tokens: a prompt's last piece, or decode
  bool begins = false;             // the sequence's first rows, or the first ones that are computed anew
  int32_t snapshot = kNoSnapshot;  // which begins: its state behind first_token tokens; none: first_token is 0
  int64_t num_replayed = 0;
  bool is_decode = false;  // its rows are behind the prompt: they take the recurrent form of the delta rule, not the chunk form

  int64_t num_logits() const { return samples ? 1 + num_drafts : 0; }
  /// After the commit: the drafts that gave a token. Right ones behind a stop give none.
  int64_t num_given_drafts() const {
    return num_drafts == 0 ? 0 : std::clamp<int64_t>(sequence->num_new - 1, 0, sequence->num_replayed);
  }
};

/// A block's keys and values, of all layers, that go from one cache to another.
struct BlockCopy {
  int32_t from = 0, to = 0;

  bool operator==(const BlockCopy&) const = default;
};

/// A state that is saved on the way: of an entry's sequence as it is behind the first num_tokens of all its tokens.
struct StateSnapshot {
  std::size_t entry = 0;
  int64_t num_tokens = 0;
  int32_t snapshot = kNoSnapshot;  // where to
};

/// What the engine computes in one step: the decode rows first, then the prefill pieces, each in order of arrival.
struct StepPlan {
  int64_t step_idx = 0;
  std::vector<FileWrite> file_writes;   // before all else, but that snapshots are first begun from: to the prefix cache's file
  std::vector<BlockCopy> saved_blocks;  // likewise: from the KV cache to the swap space
  std::vector<BlockCopy> restored_blocks;  // then: from the swap space to the KV cache
  std::vector<StepEntry> entries;
  std::vector<StateSnapshot> snapshots;  // entry by entry, of each by num_tokens
  int64_t num_rows = 0;                  // num_prefill_tokens + num_decode_tokens + num_drafts, at most the token budget
  int64_t num_prefill_tokens = 0;        // what is computed anew after a preemption included
  int64_t num_decode_tokens = 0;
  int64_t num_drafts = 0;
  int64_t num_samples = 0;                // entries that sample
  std::vector<const Sequence*> finished;  // dropped by this plan (kAborted, kDeadline); take_finished() hands them out as well
};

/// The tokens that a step's logits chose: of each entry that samples, in order, the drafts that were right and one more.
struct StepChoices {
  std::span<const TokenId> tokens;      // of all these entries, one after another
  std::span<const int32_t> num_tokens;  // [num_samples] of each, 1 ‥ 1 + num_drafts
};

}  // namespace ferry

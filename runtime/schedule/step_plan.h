#pragma once

#include <cstdint>
#include <vector>

#include "runtime/schedule/sequence.h"

namespace ferry {

/// One sequence's share of a step: tokens [first_token, first_token + num_tokens) of sequence->tokens, in the batch's rows
/// [first_row, first_row + num_tokens). first_token == 0 means that the slot's recurrent state must be zeroed first.
struct StepEntry {
  Sequence* sequence = nullptr;
  int64_t first_row = 0;
  int64_t first_token = 0;  // also the number of tokens in the caches
  int64_t num_tokens = 0;
  bool samples = false;  // its last row's logits choose a token: the last piece of a prompt, or decode
};

/// What the engine computes in one step: the decode rows first, then the prefill pieces, each in order of admission.
struct StepPlan {
  int64_t step_idx = 0;
  std::vector<StepEntry> entries;
  int64_t num_rows = 0;  // num_prefill_tokens + num_decode_tokens, at most the token budget
  int64_t num_prefill_tokens = 0;
  int64_t num_decode_tokens = 0;
  int64_t num_samples = 0;                // entries that sample
  std::vector<const Sequence*> finished;  // dropped by this plan (kAborted, kDeadline); take_finished() hands them out as well
};

}  // namespace ferry

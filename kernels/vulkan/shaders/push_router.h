#pragma once

#include "kernels/vulkan/shaders/push_types.h"

// Push constants of the router.

PUSH_BEGIN

struct RouterTopkPush {
  uint64_t logits;
  uint64_t bias;                    // [num_experts] fp32, or 0: none
  uint64_t topk_idx, topk_weights;  // [rows, top_k] int32 and fp32
  uint logits_stride;               // elements
  uint rows, num_experts, top_k;
  uint is_sigmoid, is_normalised;
  float sum_eps, scale;
};

// Of choose_experts: those of RouterTopkPush and of ExpertRowsPush, but that rows count as tokens.
struct ExpertChoicePush {
  uint64_t logits, bias, topk_idx, topk_weights;
  uint64_t row_token, slot_row, counts, row_runs, row_totals;
  uint logits_stride;
  uint num_tokens, num_experts, top_k;
  uint is_sigmoid, is_normalised;
  float sum_eps, scale;
};

PUSH_END

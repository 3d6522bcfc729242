#pragma once

#include "kernels/vulkan/shaders/push_types.h"

// Push constants of ops that move or quantise rows. Strides count elements unless they say bytes.

PUSH_BEGIN

struct GatherRowsPush {
  uint64_t x, result;
  uint64_t row_idx;                // [rows] int32, rows of x
  uint64_t scales, result_scales;  // fp32, or 0: none
  uint64_t x_row_bytes, result_row_bytes;
  uint rows;
  uint units_per_row;  // a unit is what an invocation copies: kUnitBytes
};

struct EmbedPush {
  uint64_t table, result;
  uint64_t ids;  // [rows] int32, rows of the table
  uint table_stride, result_stride;
  uint rows, cols;
};

struct CombinePush {
  uint64_t slot_rows;     // [rows, num_slots] addresses; a zero ends a row's
  uint64_t slot_row_idx;  // in place of these, if slot_rows is 0: [rows, num_slots] int32, rows of x
  uint64_t x;
  uint64_t slot_weights;
  uint64_t result;
  uint x_stride, result_stride;
  uint num_slots;
  uint rows, cols;
};

struct ExpertRowsPush {
  uint64_t topk_idx;             // [num_slots] int32
  uint64_t row_token, slot_row;  // [num_slots] int32
  uint64_t counts, first_rows;   // [num_experts] int32; where an expert's rows begin
  uint64_t row_runs;             // [num_slots] RowRun
  uint64_t row_totals;           // [num_experts] uint
  uint num_slots, top_k, num_experts;
};

struct QuantizeRowsPush {
  uint64_t x, codes, scales;
  uint x_stride, codes_stride;
  uint rows, cols, codes_cols;
};

PUSH_END

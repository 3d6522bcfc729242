#version 460
// Products of bf16, int8 and int4 weights with many rows, with cooperative matrices. Weights and rows go through shared memory.
//
// A workgroup takes kPartPanels panels and a tile of rows, its subgroups rectangles of that: kPanelSlots of them side by side,
// the others below. k goes by in steps of 64 staged bytes; the next step is on its way meanwhile. Int4 is unpacked to bytes.
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_bfloat16 : enable
#include "kernels/vulkan/shaders/matmul_common.glsl"
#include "kernels/vulkan/shaders/matmul_fragments.glsl"
#include "kernels/vulkan/shaders/int4.glsl"
#include "kernels/vulkan/shaders/matmul_finish.glsl"

layout(constant_id = 8) const uint kPartPanels = 8;
layout(constant_id = 9) const uint kPanelSlots = 2;
layout(constant_id = 10) const uint kIsWide = 0;  // int4

const uint kColumns = kPartPanels * kPanelRows;
const uint kOwnColumns = kColumns / kPanelSlots;  // of a subgroup; a multiple of 32 if the weights are gated
const uint kOwnRows = kTileRows / (kSubgroups / kPanelSlots);
const uint kFragmentsM = kOwnColumns / kFragmentM;
const uint kFragmentsN = kOwnRows / kFragmentN;
const uint kOwnSums = kFragmentsM * kFragmentsN;
const uint kPanelFragments = kPanelRows / kFragmentM;

const uint kStepK = 64 / kElementBytes;
const uint kRowUnits = (4 + 1) * kPieceUnits;  // of shared memory; the last piece keeps rows in different banks
#ifdef W_INT4
const uint kPanelPieces = 32;  // of 16 bytes of weights in a step
#else
const uint kPanelPieces = 64;
#endif
const uint kLaneWeights = kPartPanels * kPanelPieces / gl_WorkGroupSize.x;
const uint kLaneRows = kTileRows * 4 / gl_WorkGroupSize.x;

shared UNIT stage[(kColumns + kTileRows) * kRowUnits];  // weights, then x
#define FLOATS coopmat<float, gl_ScopeSubgroup, kFragmentM, kFragmentN, gl_MatrixUseAccumulator>

SUMS sums[kOwnSums];  // of the segment or group in progress, by fragment of columns and of rows
uint64_t row_addresses[kLaneRows];
uvec4 next_weights[kLaneWeights], next_rows[kLaneRows];
#ifndef W_INT8
FLOATS totals[kOwnSums];  // of the segments or groups before it
#endif
#ifdef W_INT4
shared float scales[2 * kColumns];  // of the groups of either half of a step
GroupWord next_words[kLaneWeights];
bool is_fused;
#endif

void put_piece(uint row, uint piece, uvec4 value) {
  uint at = row * kRowUnits + piece * kPieceUnits;
#ifdef W_BF16
  stage[at] = value;
#else
  stage[at] = value.xy;
  stage[at + 1] = value.zw;
#endif
}

void load_weights(uint64_t weights, uint step) {
  [[unroll]] for (uint i = 0; i < kLaneWeights; ++i) {
    uint place = gl_LocalInvocationID.x + i * gl_WorkGroupSize.x, panel = part_of_panels() * kPartPanels + place / kPanelPieces;
    uint64_t first = tile_address(weights, panel, step * (kStepK / kTileK));
    uint k = step * kStepK + place % kPanelPieces / 32 * kTileK;  // where the piece's tile begins
#ifdef W_INT4
    k += place % 2 * 32;
#endif
    bool is_there = panel < p.num_panels && k < p.k;
    next_weights[i] = is_there ? U32x4(first + place % kPanelPieces * 16).v[0] : uvec4(0);
#ifdef W_INT4
    uint shift = findLSB(p.group_size);
    next_words[i] = GroupWord(0.0, 0);
    if (is_there) {
      next_words[i] = load_group_word(weights, panel, k >> shift, p.k >> shift, place % 32 / 2, kIsWide != 0);
    }
#endif
  }
}

void load_rows(uint step) {
  [[unroll]] for (uint i = 0; i < kLaneRows; ++i) {
    uint piece = (gl_LocalInvocationID.x + i * gl_WorkGroupSize.x) % 4;
    next_rows[i] = row_addresses[i] == 0 ? uvec4(0) : x_piece(row_addresses[i], step * kStepK + piece * kPieceElements);
  }
}

void stage_weights() {
  [[unroll]] for (uint i = 0; i < kLaneWeights; ++i) {
    uint place = gl_LocalInvocationID.x + i * gl_WorkGroupSize.x;
    uint row = place / kPanelPieces * kPanelRows + place % 32 / 2;
#ifdef W_INT4
    uvec4 codes = next_weights[i];
    uint zero_point = next_words[i].zero_point;
    [[unroll]] for (uint j = 0; j < 2; ++j) {
      uvec2 words = j == 0 ? codes.xy : codes.zw;
      put_piece(row, place % 2 * 2 + j, uvec4(first_codes(words.x, zero_point), last_codes(words.x, zero_point),
                                              first_codes(words.y, zero_point), last_codes(words.y, zero_point)));
    }
    scales[place % 2 * kColumns + row] = next_words[i].scale;
#else
    put_piece(row, place % kPanelPieces / 32 * 2 + place % 2, next_weights[i]);
#endif
  }
}

void stage_rows() {
  [[unroll]] for (uint i = 0; i < kLaneRows; ++i) {
    uint place = gl_LocalInvocationID.x + i * gl_WorkGroupSize.x;
    put_piece(kColumns + place / 4, place % 4, next_rows[i]);
  }
}

uint own_column() { return gl_SubgroupID % kPanelSlots * kOwnColumns; }
uint own_row() { return gl_SubgroupID / kPanelSlots * kOwnRows; }

// 32 staged bytes of k.
void multiply_half(uint h) {
  [[unroll]] for (uint k = 0; k < 32; k += kFragmentK * kElementBytes) {
    uint at = (h * 32 + k) / kUnitBytes;
    LEFT lefts[kFragmentsM];
    [[unroll]] for (uint m = 0; m < kFragmentsM; ++m) {
      coopMatLoad(lefts[m], stage, (own_column() + m * kFragmentM) * kRowUnits + at, kRowUnits,
                  gl_CooperativeMatrixLayoutRowMajor);
    }
    [[unroll]] for (uint n = 0; n < kFragmentsN; ++n) {
      RIGHT right;
      coopMatLoad(right, stage, (kColumns + own_row() + n * kFragmentN) * kRowUnits + at, kRowUnits,
                  gl_CooperativeMatrixLayoutColumnMajor);
      [[unroll]] for (uint m = 0; m < kFragmentsM; ++m) {
        sums[m * kFragmentsN + n] = coopMatMulAdd(lefts[m], right, sums[m * kFragmentsN + n]);
      }
    }
  }
}

void clear_sums() {
  [[unroll]] for (uint i = 0; i < kOwnSums; ++i) sums[i] = SUMS(SUM(0));
}

#ifdef W_INT4
// Of half `h` of the step.
void end_group(uint h) {
  [[unroll]] for (uint m = 0; m < kFragmentsM; ++m) {
    FLOATS scale;  // the same in every row: a stride of 0
    coopMatLoad(scale, scales, h * kColumns + own_column() + m * kFragmentM, 0, gl_CooperativeMatrixLayoutColumnMajor);
    [[unroll]] for (uint n = 0; n < kFragmentsN; ++n) {
      uint i = m * kFragmentsN + n;
      FLOATS dot = FLOATS(sums[i]), total = totals[i];
      for (uint j = 0; j < dot.length(); ++j) total[j] = add_group(kIsWide != 0, is_fused, scale[j], dot[j], total[j]);
      totals[i] = total;
    }
  }
  clear_sums();
}
#endif

void multiply_step(uint step, uint num_steps) {
  [[unroll]] for (uint h = 0; h < 2; ++h) {
    multiply_half(h);
#ifdef W_INT4
    uint end = step * kStepK + (h + 1) * 32;
    if (end <= p.k && end % p.group_size == 0) end_group(h);
#endif
  }
#ifdef W_BF16
  const uint kSegmentSteps = kSegmentTiles * kTileK / kStepK;
  if ((step + 1) % kSegmentSteps != 0 && step + 1 != num_steps) return;
  [[unroll]] for (uint i = 0; i < kOwnSums; ++i) totals[i] = totals[i] + sums[i];
  clear_sums();
#endif
}

#ifdef W_INT8
#define RESULT int
#define RESULTS sums
#else
#define RESULT float
#define RESULTS totals
#endif
const uint kScratchSize = (kIsGated != 0 ? 2 : 1) * kFragmentSize;  // of a subgroup: a fragment, and its ups
shared RESULT scratch[kSubgroups * kScratchSize];

float whole_sum(uint64_t weights, uint panel, uint lane, uint row, RESULT result) {
#ifdef W_INT4
  precise float product = result * x_scale(row);
  return product;
#else
  return product_sum(weights, panel, lane, row, result);
#endif
}

// Stores fragment (m, n) of the subgroup, and takes ups from the panel behind.
void store_fragment(MatmulTile rows, uint64_t weights, uint m, uint n) {
  uint first = gl_SubgroupID * kScratchSize;
  subgroupBarrier();
  coopMatStore(RESULTS[m * kFragmentsN + n], scratch, first, kFragmentM, gl_CooperativeMatrixLayoutColumnMajor);
  if (kIsGated != 0) {
    uint up = min(m + kPanelFragments, kFragmentsM - 1) * kFragmentsN + n;
    coopMatStore(RESULTS[up], scratch, first + kFragmentSize, kFragmentM, gl_CooperativeMatrixLayoutColumnMajor);
  }
  subgroupBarrier();
  uint panel = part_of_panels() * kPartPanels + (own_column() + m * kFragmentM) / kPanelRows;
  [[dont_unroll]] for (uint i = gl_SubgroupInvocationID; i < kFragmentSize; i += kSubgroupSize) {
    uint lane = m * kFragmentM % kPanelRows + i % kFragmentM, row = own_row() + n * kFragmentN + i / kFragmentM;
    uint col = (kIsGated != 0 ? panel / 2 : panel) * kPanelRows + lane, call_row = rows.first_row + row;
    if (row >= rows.num_rows || col >= p.out_cols) continue;
    float sum = whole_sum(weights, panel, lane, call_row, scratch[first + i]);
    if (kIsGated == 0) {
      store_product(call_row, col, sum);
    } else {
      store_gated(call_row, col, sum, whole_sum(weights, panel + 1, lane, call_row, scratch[first + kFragmentSize + i]));
    }
  }
}

void main() {
  MatmulTile rows = row_tile(kTileRows);
  if (rows.num_rows == 0) return;
  uint64_t weights = group_weights(rows);
  uint num_steps = (p.k + kStepK - 1) / kStepK;
  [[unroll]] for (uint i = 0; i < kLaneRows; ++i) {
    uint row = (gl_LocalInvocationID.x + i * gl_WorkGroupSize.x) / 4;
    row_addresses[i] = row < rows.num_rows ? x_row_address(rows.first_row + row) : 0;
  }
  clear_sums();
#ifndef W_INT8
  [[unroll]] for (uint i = 0; i < kOwnSums; ++i) totals[i] = FLOATS(0.0);
#endif
#ifdef W_INT4
  is_fused = kIsWide != 0 && has_fused_fma(p.fma_probe);
#endif
  load_weights(weights, 0);
  load_rows(0);
  for (uint step = 0; step < num_steps; ++step) {
    barrier();
    stage_weights();
    stage_rows();
    barrier();
    if (step + 1 < num_steps) {
      load_weights(weights, step + 1);
      load_rows(step + 1);
    }
    multiply_step(step, num_steps);
  }
  [[unroll]] for (uint m = 0; m < kFragmentsM; ++m) {
    if (kIsGated != 0 && m / kPanelFragments % 2 == 1) continue;
    [[unroll]] for (uint n = 0; n < kFragmentsN; ++n) store_fragment(rows, weights, m, n);
  }
}

#version 460
// Products of bf16, int8 and int4 weights with many rows, with cooperative matrices. Weights and rows go through shared memory.
//
// A workgroup takes kPartPanels panels and a tile of rows. Teams of kPanelSlots subgroups share the panels; fragments of the
// tile's rows go to the teams in turn. K goes by in steps of 64 staged bytes; the next is on its way to registers meanwhile.
// Int4 is unpacked to bytes.
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_bfloat16 : enable
#include "kernels/vulkan/shaders/matmul_common.glsl"
#include "kernels/vulkan/shaders/matmul_fragments.glsl"
#include "kernels/vulkan/shaders/int4.glsl"
#include "kernels/vulkan/shaders/matmul_finish.glsl"

layout(constant_id = 8) const uint kPartPanels = 8;
layout(constant_id = 9) const uint kPanelSlots = 2;
#ifdef W_INT4
layout(constant_id = 10) const uint kIsWide = 0;
#else
layout(constant_id = 10) const uint kHasSegments = 1;  // bf16: whether k is longer than one
#endif
layout(constant_id = 11) const uint kBlockTiles = 1;  // tiles of rows that go through all panels together

const uint kColumns = kPartPanels * kPanelRows;
const uint kOwnColumns = kColumns / kPanelSlots;  // of a subgroup; a multiple of 32 if the weights are gated
const uint kRowSlots = kSubgroups / kPanelSlots;
const uint kOwnRows = kTileRows / kRowSlots;
const uint kFragmentsM = kOwnColumns / kFragmentM;
const uint kFragmentsN = kOwnRows / kFragmentN;
const uint kOwnSums = kFragmentsM * kFragmentsN;

const uint kStepBytes = 64;
const uint kStepK = kStepBytes / kElementBytes;
const uint kStepTiles = kStepK / kTileK;
const uint kRowPieces = kStepBytes / 16;
const uint kRowUnits = kRowPieces + 1;  // of shared memory; the last one keeps rows in different banks
const uint kStageUnits = (kColumns + kTileRows) * kRowUnits;
const uint kPanelPieces = kStepTiles * 32;  // of 16 bytes of weights in a step
const uint kLaneWeights = kPartPanels * kPanelPieces / gl_WorkGroupSize.x;
const uint kLaneRows = kTileRows * kRowPieces / gl_WorkGroupSize.x;

const uint kResultUnits = kPanelRows / 4 + 1;  // of a row of a fragment of results, likewise
const uint kFragmentResults = kFragmentN * kResultUnits;
const uint kOwnResults = kFragmentsM * kFragmentResults;  // of a subgroup at once
const uint kAllResults = kSubgroups * kOwnResults;
shared uvec4 stage[kStageUnits > kAllResults ? kStageUnits : kAllResults];  // weights, then x; at the end results
#define FLOATS coopmat<float, gl_ScopeSubgroup, kFragmentM, kFragmentN, gl_MatrixUseAccumulator>

SUMS sums[kOwnSums];  // of the segment or group in progress, by fragment of columns and of rows
uint num_own_fragments;  // of rows that are there
uint64_t weight_addresses[kLaneWeights], row_addresses[kLaneRows];
uvec4 next_weights[kLaneWeights], next_rows[kLaneRows];
#ifndef W_INT8
FLOATS totals[kOwnSums];  // of the segments or groups before it
#endif
#ifdef W_INT4
shared float scales[2 * kColumns];  // of the groups of either half of a step
GroupWord next_words[kLaneWeights];
bool is_fused;
#endif

uint own_column() { return gl_SubgroupID % kPanelSlots * kOwnColumns; }
uint own_row(uint n) { return (n * kRowSlots + gl_SubgroupID / kPanelSlots) * kFragmentN; }

uint piece_place(uint i) { return gl_LocalInvocationID.x + i * gl_WorkGroupSize.x; }

// The tile of rows and the part of the panels that are the workgroup's: those of kBlockTiles tiles follow each other, so that
// caches hold what they share.
uvec2 own_work() {
  uint num_row_tiles = gl_NumWorkGroups.x, num_parts = gl_NumWorkGroups.y * gl_NumWorkGroups.z;
  uint place = part_of_panels() * num_row_tiles + gl_WorkGroupID.x;
  uint first = place / (kBlockTiles * num_parts) * kBlockTiles, width = min(kBlockTiles, num_row_tiles - first);
  place -= first * num_parts;
  return uvec2(first + place % width, place / width);
}

void find_weights(uint64_t weights, uint first_panel) {
  [[unroll]] for (uint i = 0; i < kLaneWeights; ++i) {
    uint panel = min(first_panel + piece_place(i) / kPanelPieces, p.num_panels - 1);
    weight_addresses[i] = tile_address(weights, panel, 0) + piece_place(i) % kPanelPieces * 16;
  }
}

void find_rows(MatmulTile rows) {
  [[unroll]] for (uint i = 0; i < kLaneRows; ++i) {
    uint row = piece_place(i) / kRowPieces;
    row_addresses[i] = row < rows.num_rows ? x_row_address(rows.first_row + row) : 0;
  }
}

// Nothing of weights and zeros of x behind the end of k.
void load_step(uint64_t weights, uint first_panel, uint step) {
  [[unroll]] for (uint i = 0; i < kLaneWeights; ++i) {
    uint place = piece_place(i) % kPanelPieces, tile = step * kStepTiles + place / 32;
    bool is_there = tile < num_tiles();
    next_weights[i] = is_there ? U32x4(weight_addresses[i] + step * (kStepTiles * kTileBytes)).v[0] : uvec4(0);
#ifdef W_INT4
    uint shift = findLSB(p.group_size), panel = first_panel + piece_place(i) / kPanelPieces;
    next_words[i] = GroupWord(0.0, 0);
    uint k = tile * kTileK + place % 2 * 32;
    if (k < p.k && panel < p.num_panels) {
      next_words[i] = load_group_word(weights, panel, k >> shift, p.k >> shift, place % 32 / 2, kIsWide != 0);
    }
#endif
  }
  [[unroll]] for (uint i = 0; i < kLaneRows; ++i) {
    uint k = step * kStepK + piece_place(i) % kRowPieces * kPieceElements;
    next_rows[i] = row_addresses[i] == 0 ? uvec4(0) : x_piece(row_addresses[i], k);
  }
}

// Rows that are not there stay what they are: nobody stores their sums.
void stage_step() {
  [[unroll]] for (uint i = 0; i < kLaneWeights; ++i) {
    uint place = piece_place(i);
    uint column = place / kPanelPieces * kPanelRows + place % 32 / 2;
#ifdef W_INT4
    uvec4 codes = next_weights[i];
    uint zero_point = next_words[i].zero_point, at = column * kRowUnits + place % 2 * 2;
    stage[at] = uvec4(first_codes(codes.x, zero_point), last_codes(codes.x, zero_point), first_codes(codes.y, zero_point),
                      last_codes(codes.y, zero_point));
    stage[at + 1] = uvec4(first_codes(codes.z, zero_point), last_codes(codes.z, zero_point), first_codes(codes.w, zero_point),
                          last_codes(codes.w, zero_point));
    scales[place % 2 * kColumns + column] = next_words[i].scale;
#else
    stage[column * kRowUnits + place % kPanelPieces / 32 * 2 + place % 2] = next_weights[i];
#endif
  }
  [[unroll]] for (uint i = 0; i < kLaneRows; ++i) {
    uint place = piece_place(i);
    if (row_addresses[i] != 0) stage[(kColumns + place / kRowPieces) * kRowUnits + place % kRowPieces] = next_rows[i];
  }
}

void clear_sums() {
  [[unroll]] for (uint i = 0; i < kOwnSums; ++i) sums[i] = SUMS(SUM(0));
}

// 32 staged bytes of k, from unit `at` of the rows in shared memory on.
void multiply_half(uint at) {
  [[unroll]] for (uint k = 0; k < 2; k += kFragmentK * kElementBytes / 16) {
    LEFT lefts[kFragmentsM];
    [[unroll]] for (uint m = 0; m < kFragmentsM; ++m) {
      coopMatLoad(lefts[m], stage, at + k + (own_column() + m * kFragmentM) * kRowUnits, kRowUnits,
                  gl_CooperativeMatrixLayoutRowMajor);
    }
    [[unroll]] for (uint n = 0; n < kFragmentsN; ++n) {
      RIGHT right;
      coopMatLoad(right, stage, at + k + (kColumns + own_row(n)) * kRowUnits, kRowUnits,
                  gl_CooperativeMatrixLayoutColumnMajor);
      [[unroll]] for (uint m = 0; m < kFragmentsM; ++m) {
        sums[m * kFragmentsN + n] = coopMatMulAdd(lefts[m], right, sums[m * kFragmentsN + n]);
      }
    }
  }
}

#ifdef W_INT4
// Of the group that ends with half `h` of the step.
void end_group(uint h) {
  [[unroll]] for (uint m = 0; m < kFragmentsM; ++m) {
    FLOATS scale;  // the same in every row: a stride of 0
    coopMatLoad(scale, scales, h * kColumns + own_column() + m * kFragmentM, 0, gl_CooperativeMatrixLayoutColumnMajor);
    [[unroll]] for (uint n = 0; n < kFragmentsN; ++n) {
      uint i = m * kFragmentsN + n;
      FLOATS dot = FLOATS(sums[i]), total = totals[i];
      [[unroll]] for (uint j = 0; j < dot.length(); ++j) {
        total[j] = add_group(kIsWide != 0, is_fused, scale[j], dot[j], total[j]);
      }
      totals[i] = total;
    }
  }
  clear_sums();
}
#endif

void multiply_step(uint step) {
  [[unroll]] for (uint h = 0; h < 2; ++h) {
    if (num_own_fragments != 0) multiply_half(h * 2);
#ifdef W_INT4
    uint end = step * kStepK + (h + 1) * 32;
    if (end <= p.k && end % p.group_size == 0) end_group(h);
#endif
  }
}

void multiply(uint64_t weights, uint first_panel) {
  uint num_steps = (p.k + kStepK - 1) / kStepK, segment_steps = num_steps;
#ifdef W_BF16
  if (kHasSegments != 0) segment_steps = kSegmentTiles * kTileK / kStepK;
#endif
  load_step(weights, first_panel, 0);
  for (uint step = 0; step < num_steps;) {
    clear_sums();
    for (uint end = min(step + segment_steps, num_steps); step < end; ++step) {
      barrier();
      stage_step();
      barrier();
      load_step(weights, first_panel, step + 1);
      multiply_step(step);
    }
#ifdef W_BF16
    [[unroll]] for (uint i = 0; i < kOwnSums; ++i) totals[i] = totals[i] + sums[i];
#endif
  }
}

#ifdef W_INT8
#define RESULTS sums
#define SUMMED int
int result_of(uint bits) { return int(bits); }
#else
#define RESULTS totals
#define SUMMED float
float result_of(uint bits) { return uintBitsToFloat(bits); }
#endif

// The sum of lane `lane` of a panel and a row of the call, whose results begin at unit `first` of shared memory.
float whole_sum(uint64_t weights, uint panel, uint lane, uint row, uint first) {
  SUMMED result = result_of(stage[first + lane / 4][lane % 4]);
#ifdef W_INT4
  precise float product = result * x_scale(row);
  return product;
#else
  return product_sum(weights, panel, lane, row, result);
#endif
}

// Stores columns [lane, lane + 8) of a panel, or of the gates and ups of two, one by one.
void store_singly(uint64_t weights, uint panel, uint lane, uint row, uint col, uint first) {
  [[dont_unroll]] for (uint i = 0; i < 8 && col + i < p.out_cols; ++i) {
    float sum = whole_sum(weights, panel, lane + i, row, first);
    if (kIsGated == 0) {
      store_product(row, col + i, sum);
    } else {
      store_gated(row, col + i, sum, whole_sum(weights, panel + 1, lane + i, row, first + kFragmentResults));
    }
  }
}

// Likewise in pieces of 16 bytes: all are there, without a bias.
void store_pieces(uint64_t weights, uint panel, uint lane, uint row, uint64_t address, uint first) {
  float values[8];
  [[unroll]] for (uint i = 0; i < 8; ++i) {
    values[i] = whole_sum(weights, panel, lane + i, row, first);
    if (kIsGated != 0) {
      float up = whole_sum(weights, panel + 1, lane + i, row, first + kFragmentResults);
      values[i] = gated_value(values[i], up);
    }
  }
#ifdef T_BF16
  uvec4 pairs;
  [[unroll]] for (uint i = 0; i < 4; ++i) pairs[i] = bf16_bits(values[2 * i]) | bf16_bits(values[2 * i + 1]) << 16;
  U32x4(address).v[0] = pairs;
#else
  F32x4(address).v[0] = vec4(values[0], values[1], values[2], values[3]);
  F32x4(address + 16).v[0] = vec4(values[4], values[5], values[6], values[7]);
#endif
}

// Stores the subgroup's n-th fragments of rows, which lie in shared memory from unit `first` on.
void store_rows(MatmulTile rows, uint64_t weights, uint first_panel, uint n, uint first) {
  const uint kOwnPanels = kFragmentsM / (kIsGated != 0 ? 2 : 1);  // of the result; a fragment has a panel's columns
  [[dont_unroll]] for (uint i = gl_SubgroupInvocationID; i < kOwnPanels * kFragmentN * 2; i += kSubgroupSize) {
    uint own_panel = i / (2 * kFragmentN), row = own_row(n) + i / 2 % kFragmentN, lane = i % 2 * 8;
    uint panel = first_panel + own_column() / kPanelRows + own_panel * (kIsGated != 0 ? 2 : 1);
    if (row >= rows.num_rows || panel >= p.num_panels) continue;
    uint call_row = rows.first_row + row, col = (kIsGated != 0 ? panel / 2 : panel) * kPanelRows + lane;
    uint at = first + own_panel * (kIsGated != 0 ? 2 : 1) * kFragmentResults + i / 2 % kFragmentN * kResultUnits;
    uint64_t address = result_row(call_row) + col * kBytesOfT;
    if (p.bias == 0 && col + 8 <= p.out_cols && uint(address) % 16 == 0) {
      store_pieces(weights, panel, lane, call_row, address, at);
    } else {
      store_singly(weights, panel, lane, call_row, col, at);
    }
  }
}

void store(MatmulTile rows, uint64_t weights, uint first_panel) {
  uint first = gl_SubgroupID * kOwnResults;
  [[dont_unroll]] for (uint run = 0; run < num_own_fragments; ++run) {
    subgroupBarrier();
    [[unroll]] for (uint n = 0; n < kFragmentsN; ++n) {
      if (n == run) {
        [[unroll]] for (uint m = 0; m < kFragmentsM; ++m) {
          coopMatStore(RESULTS[m * kFragmentsN + n], stage, first + m * kFragmentResults, kResultUnits,
                       gl_CooperativeMatrixLayoutColumnMajor);
        }
      }
    }
    subgroupBarrier();
    store_rows(rows, weights, first_panel, run, first);
  }
}

void main() {
  uvec2 work = own_work();
  MatmulTile rows = row_tile(work.x, kTileRows);
  uint first_panel = work.y * kPartPanels;
  if (rows.num_rows == 0 || first_panel >= p.num_panels) return;
  uint64_t weights = group_weights(rows);
  num_own_fragments = (rows.num_rows + kFragmentN - 1) / kFragmentN;
  num_own_fragments = (num_own_fragments + kRowSlots - 1 - gl_SubgroupID / kPanelSlots) / kRowSlots;
  find_weights(weights, first_panel);
  find_rows(rows);
#ifndef W_INT8
  [[unroll]] for (uint i = 0; i < kOwnSums; ++i) totals[i] = FLOATS(0.0);
#endif
#ifdef W_INT4
  is_fused = kIsWide != 0 && has_fused_fma(p.fma_probe);
#endif
  multiply(weights, first_panel);
  barrier();
  store(rows, weights, first_panel);
}

#version 460
// attention of ops.h where cooperative matrices multiply bf16: a workgroup sums up one split of kSplitKeys keys, or all splits,
// for a tile of up to kRows query rows of one kv head. If one split is not all, partial sums are left, which
// attention_reduce.comp adds.
//
// A subgroup makes the scores of its 16 keys of the split for all rows; then invocations side by side turn a row's scores into
// weights; then a subgroup sums up its own columns of the values. Keys and values go through the subgroup's own part of shared
// memory, 16 rows of kOwnColumns elements at a time.
//
// A row's bits depend on its own keys alone: a score is a sum of fragments over ascending elements; a split's weights are
// e^(score - the split's largest), added up as 16 sums of 8, which are added as a tree; its values are a sum of fragments over
// ascending keys, of the weights' upper bf16 and then of what these leave, to 2^-17; splits are added in ascending order by attention_fold.glsl. Keys that a row does not
// see have a weight of 0 exactly.
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_bfloat16 : enable
#include "common.glsl"
#include "units.glsl"
#include "push_attention.h"
#include "attention_fold.glsl"
#include "attention_sequence.glsl"

layout(constant_id = 1) const uint kHeadDim = 256;  // a multiple of 16
layout(constant_id = 2) const uint kSubgroupSize = 32;
layout(constant_id = 3) const uint kRowFragments = 4;
layout(constant_id = 4) const uint kColumnFragments = 4;  // of values, of a subgroup
layout(constant_id = 5) const uint kAhead = 8;  // pieces of keys, or of values, that are on their way
layout(constant_id = 6) const uint kAligned = 1;  // whether rows of q and of the result begin at 16 bytes

layout(push_constant, scalar) uniform Push { AttentionPush p; };

const uint kSide = 16;  // of every fragment
#define LEFT coopmat<bfloat16_t, gl_ScopeSubgroup, kSide, kSide, gl_MatrixUseA>
#define RIGHT coopmat<bfloat16_t, gl_ScopeSubgroup, kSide, kSide, gl_MatrixUseB>
#define SUMS coopmat<float, gl_ScopeSubgroup, kSide, kSide, gl_MatrixUseAccumulator>

const uint kRows = kSide * kRowFragments;
const uint kSplitFragments = kSplitKeys / kSide;  // of keys; as many subgroups has a workgroup
const uint kOwnSums = kRowFragments * kColumnFragments;
const uint kOwnColumns = kSide * kColumnFragments;

// Shared memory is made of units of 16 bytes; rows that are read as fragments have one more, which keeps them in different banks.
const uint kQueryUnits = kHeadDim / kUnit;
const uint kQueryStride = kQueryUnits + 1;
const uint kScoreStride = kSplitKeys / 4 + 1;  // of fp32 scores; a row's weights, in two parts, take their place
const uint kPieceUnits = kOwnColumns / kUnit;  // of a row
const uint kPieceStride = kPieceUnits + 1;
const uint kLaneUnits = (kSide * kPieceUnits + kSubgroupSize - 1) / kSubgroupSize;
const uint kKeyPieces = (kHeadDim + kOwnColumns - 1) / kOwnColumns;

const uint kParts = 16;  // of a row's weights, kUnit keys each
const uint kRowInvocations = kSplitFragments * kSubgroupSize / kRows;
const uint kRowThreads = kRowInvocations < kParts ? kRowInvocations : kParts;
const uint kThreadParts = kParts / kRowThreads;
const float kLog2E = 1.44269504;

shared uvec4 queries[kRows * kQueryStride];
shared uvec4 scores[kRows * kScoreStride];
shared uvec4 pieces[kSplitFragments * kSide * kPieceStride];
shared float keep_factors[kRows], split_factors[kRows];  // of rows, for the split at hand
shared float largest_scores[kRows], weight_sums[kRows];  // of rows, at the end

#include "attention_tile.glsl"

SUMS totals[kOwnSums];  // of the splits so far, by fragment of rows and of columns
uvec4 next_keys[kAhead * kLaneUnits], next_values[kAhead * kLaneUnits];
uint own_place;  // of this lane's fragment of the split's keys: its first row in the cache

void stage_queries() {
  for (uint i = gl_LocalInvocationID.x; i < kRows * kQueryUnits; i += gl_WorkGroupSize.x) {
    uint row = i / kQueryUnits, unit = i % kQueryUnits;
    uint query = first_query + row, token = query / group;
    uvec4 elements = uvec4(0);
    if (row < num_queries) {
      uint64_t column = uint64_t(kv_head * group + query - token * group) * kHeadDim;
      uint64_t address = p.q + (uint64_t(sequence.first_row + token) * p.q_stride + column) * kBytesOfT;
      elements = load_unit(address, unit * kUnit, kHeadDim, kAligned != 0);
    }
    queries[row * kQueryStride + unit] = elements;
  }
}

// Blocks are made of whole fragments of keys.
void find_keys(uint first_key) {
  uint key = min(first_key + gl_SubgroupInvocationID % kSplitFragments * kSide, (num_visible - 1) / kSide * kSide);
  uint block = key / p.block_tokens;
  uint id = U32(p.blocks).v[sequence.first_block + block];
  own_place = (id * p.num_kv_heads + kv_head) * p.block_tokens + key - block * p.block_tokens;
}

// Where the rows of a fragment of keys begin in the cache; all lanes ask for the same.
uint64_t cache_rows(uint64_t base, uint fragment) {
  return base + uint64_t(subgroupShuffle(own_place, fragment)) * (kHeadDim * kBytesOfT);
}

uint own_column() { return gl_SubgroupID * kOwnColumns; }

// This lane's units of a piece: kOwnColumns elements from `first_column` of rows that begin at `rows`, of which num_rows are
// there. The others are zeros, whatever lies in the cache.
void fetch_piece(uint64_t rows, uint num_rows, uint first_column, out uvec4 units[kLaneUnits]) {
  [[unroll]] for (uint i = 0; i < kLaneUnits; ++i) {
    uint at = gl_SubgroupInvocationID + i * kSubgroupSize, row = at / kPieceUnits;
    uint column = first_column + at % kPieceUnits * kUnit;
    units[i] = uvec4(0);
    if (row < min(kSide, num_rows) && column < kHeadDim) units[i] = U32x4(rows + (row * kHeadDim + column) * kBytesOfT).v[0];
  }
}

// Keys of the tile from `first` on.
uint count_keys(uint first) { return first < num_visible ? num_visible - first : 0; }

void fetch_keys(uint first_key, uint piece) {
  uvec4 units[kLaneUnits];
  uint64_t rows = cache_rows(p.keys, gl_SubgroupID);
  fetch_piece(rows, count_keys(first_key + gl_SubgroupID * kSide), piece * kOwnColumns, units);
  [[unroll]] for (uint i = 0; i < kLaneUnits; ++i) next_keys[piece % kAhead * kLaneUnits + i] = units[i];
}

// The subgroup's columns of a fragment's values.
void fetch_values(uint first_key, uint fragment) {
  uvec4 units[kLaneUnits];
  uint64_t rows = cache_rows(p.values, fragment);
  fetch_piece(rows, count_keys(first_key + fragment * kSide), own_column(), units);
  [[unroll]] for (uint i = 0; i < kLaneUnits; ++i) next_values[fragment % kAhead * kLaneUnits + i] = units[i];
}

void fetch_first_keys(uint first_key) {
  [[unroll]] for (uint piece = 0; piece < kAhead && piece < kKeyPieces; ++piece) fetch_keys(first_key, piece);
}
void fetch_first_values(uint first_key) {
  [[unroll]] for (uint fragment = 0; fragment < kAhead; ++fragment) fetch_values(first_key, fragment);
}

uint own_piece() { return gl_SubgroupID * (kSide * kPieceStride); }

void stage_unit(uint i, uvec4 unit) {
  uint at = gl_SubgroupInvocationID + i * kSubgroupSize, row = at / kPieceUnits;
  if (row < kSide) pieces[own_piece() + row * kPieceStride + at % kPieceUnits] = unit;
}

// The scores of the subgroup's keys for all rows, unless no row sees one.
void score_keys(uint first_key) {
  if (first_key + gl_SubgroupID * kSide >= num_visible) return;
  SUMS dots[kRowFragments];
  [[unroll]] for (uint r = 0; r < kRowFragments; ++r) dots[r] = SUMS(0.0);
  [[unroll]] for (uint piece = 0; piece < kKeyPieces; ++piece) {
    subgroupBarrier();
    [[unroll]] for (uint i = 0; i < kLaneUnits; ++i) stage_unit(i, next_keys[piece % kAhead * kLaneUnits + i]);
    subgroupBarrier();
    if (piece + kAhead < kKeyPieces) fetch_keys(first_key, piece + kAhead);
    [[unroll]] for (uint c = 0; c < kColumnFragments; ++c) {
      uint d = piece * kColumnFragments + c;
      if (d * kSide >= kHeadDim) continue;
      RIGHT right;
      coopMatLoad(right, pieces, own_piece() + c * (kSide / kUnit), kPieceStride, gl_CooperativeMatrixLayoutColumnMajor);
      [[unroll]] for (uint r = 0; r < kRowFragments; ++r) {
        LEFT left;
        coopMatLoad(left, queries, r * kSide * kQueryStride + d * (kSide / kUnit), kQueryStride,
                    gl_CooperativeMatrixLayoutRowMajor);
        dots[r] = coopMatMulAdd(left, right, dots[r]);
      }
    }
  }
  [[unroll]] for (uint r = 0; r < kRowFragments; ++r) {
    coopMatStore(dots[r], scores, r * kSide * kScoreStride + gl_SubgroupID * (kSide / 4), kScoreStride,
                 gl_CooperativeMatrixLayoutRowMajor);
  }
}

// The scores of part `part` of a row, a key each: minus infinity where the row does not see it.
void load_scores(uint row, uint part, uint first_key, uint last, out float part_scores[kUnit]) {
  [[unroll]] for (uint i = 0; i < kUnit; ++i) {
    uint key = part * kUnit + i;
    precise float score = uintBitsToFloat(scores[row * kScoreStride + key / 4][i % 4]) * p.scale;
    part_scores[i] = first_key + key <= last ? score : NO_SCORE;
  }
}

// Of the kRowThreads invocations that share a row, in the order of a tree.
float row_max(float x) {
  [[unroll]] for (uint step = 1; step < kRowThreads; step *= 2) x = max(x, subgroupShuffleXor(x, step));
  return x;
}
float row_sum(float x) {
  [[unroll]] for (uint step = 1; step < kRowThreads; step *= 2) {
    precise float sum = x + subgroupShuffleXor(x, step);
    x = sum;
  }
  return x;
}

float key_weight(float score, float largest) {
  precise float exponent = (score - largest) * kLog2E;
  return score == NO_SCORE ? 0.0 : exp2(exponent);
}

// Rounded to bf16.
uvec4 packed(float x[kUnit]) {
  uvec4 unit;
  [[unroll]] for (uint i = 0; i < 4; ++i) unit[i] = bf16_bits(x[2 * i]) | bf16_bits(x[2 * i + 1]) << 16;
  return unit;
}

// What packed() leaves of numbers.
uvec4 packed_rest(float x[kUnit]) {
  float rest[kUnit];
  [[unroll]] for (uint i = 0; i < kUnit; ++i) rest[i] = x[i] - round_to_bf16(x[i]);
  return packed(rest);
}

// Turns a split's scores into weights, and takes these into the row's largest score and sum of weights.
void weigh_keys(uint first_key, inout float total_largest, inout float total_sum) {
  uint t = gl_SubgroupID * kSubgroupSize + gl_SubgroupInvocationID;
  uint row = min(t / kRowThreads, kRows - 1), first_part = t % kRowThreads * kThreadParts;
  bool is_own = t / kRowThreads < kRows;
  uint last = last_position(row);
  float weights[kThreadParts][kUnit], parts[kThreadParts];
  float largest = NO_SCORE;
  [[unroll]] for (uint j = 0; j < kThreadParts; ++j) {
    load_scores(row, first_part + j, first_key, last, weights[j]);
    [[unroll]] for (uint i = 0; i < kUnit; ++i) largest = max(largest, weights[j][i]);
  }
  largest = row_max(largest);
  [[unroll]] for (uint j = 0; j < kThreadParts; ++j) {
    precise float sum = 0.0;
    [[unroll]] for (uint i = 0; i < kUnit; ++i) {
      weights[j][i] = key_weight(weights[j][i], largest);
      sum += weights[j][i];
    }
    parts[j] = sum;
  }
  [[unroll]] for (uint step = 1; step < kThreadParts; step *= 2) {
    [[unroll]] for (uint j = 0; j < kThreadParts; j += 2 * step) {
      precise float sum = parts[j] + parts[j + step];
      parts[j] = sum;
    }
  }
  float split_sum = row_sum(parts[0]);
  subgroupBarrier();  // all of the row's scores have been read
  if (is_own) {
    [[unroll]] for (uint j = 0; j < kThreadParts; ++j) {
      uint at = row * kScoreStride + first_part + j;
      scores[at] = packed(weights[j]);
      scores[at + kParts] = packed_rest(weights[j]);
    }
  }
  float new_largest = max(total_largest, largest);
  float keep = weight_of(total_largest, new_largest), weight = weight_of(largest, new_largest);
  total_sum = fold(total_sum, keep, split_sum, weight);
  total_largest = new_largest;
  if (is_own && first_part == 0) {
    keep_factors[row] = keep;
    split_factors[row] = weight;
    largest_scores[row] = new_largest;
    weight_sums[row] = total_sum;
  }
}

// The split's weighted values of the subgroup's columns.
void sum_values(uint first_key, out SUMS sums[kOwnSums]) {
  [[unroll]] for (uint i = 0; i < kOwnSums; ++i) sums[i] = SUMS(0.0);
  [[unroll]] for (uint fragment = 0; fragment < kSplitFragments; ++fragment) {
    if (first_key + fragment * kSide >= num_visible) break;
    subgroupBarrier();
    [[unroll]] for (uint i = 0; i < kLaneUnits; ++i) stage_unit(i, next_values[fragment % kAhead * kLaneUnits + i]);
    subgroupBarrier();
    if (fragment + kAhead < kSplitFragments) fetch_values(first_key, fragment + kAhead);
    RIGHT rights[kColumnFragments];
    [[unroll]] for (uint c = 0; c < kColumnFragments; ++c) {
      coopMatLoad(rights[c], pieces, own_piece() + c * (kSide / kUnit), kPieceStride, gl_CooperativeMatrixLayoutRowMajor);
    }
    [[unroll]] for (uint r = 0; r < kRowFragments; ++r) {
      LEFT left, rest;
      uint at = r * kSide * kScoreStride + fragment * (kSide / kUnit);
      coopMatLoad(left, scores, at, kScoreStride, gl_CooperativeMatrixLayoutRowMajor);
      coopMatLoad(rest, scores, at + kParts, kScoreStride, gl_CooperativeMatrixLayoutRowMajor);
      [[unroll]] for (uint c = 0; c < kColumnFragments; ++c) {
        uint i = r * kColumnFragments + c;
        sums[i] = coopMatMulAdd(left, rights[c], sums[i]);
        sums[i] = coopMatMulAdd(rest, rights[c], sums[i]);
      }
    }
  }
}

void fold_values(SUMS sums[kOwnSums]) {
  [[unroll]] for (uint r = 0; r < kRowFragments; ++r) {
    SUMS keep, weight;  // the same in every column: a stride of 0
    coopMatLoad(keep, keep_factors, r * kSide, 0, gl_CooperativeMatrixLayoutColumnMajor);
    coopMatLoad(weight, split_factors, r * kSide, 0, gl_CooperativeMatrixLayoutColumnMajor);
    [[unroll]] for (uint c = 0; c < kColumnFragments; ++c) {
      uint i = r * kColumnFragments + c;
      SUMS next = sums[i], total = totals[i];
      for (uint j = 0; j < total.length(); ++j) total[j] = fold(total[j], keep[j], next[j], weight[j]);
      totals[i] = total;
    }
  }
}

// Eight elements of the result, or of the partial sums.
void store_unit(uint row, uint column, vec4 first, vec4 second) {
  uint query = first_query + row, token = query / group, head = kv_head * group + query - token * group;
  if (is_whole) {
    uint64_t address = p.result + (uint64_t(sequence.first_row + token) * p.result_stride + head * kHeadDim) * kBytesOfT;
    float inverse = 1.0 / weight_sums[row];
    first *= inverse;
    second *= inverse;
    if (kAligned != 0) {
      uvec4 unit = uvec4(bf16_bits(first.x) | bf16_bits(first.y) << 16, bf16_bits(first.z) | bf16_bits(first.w) << 16,
                         bf16_bits(second.x) | bf16_bits(second.y) << 16, bf16_bits(second.z) | bf16_bits(second.w) << 16);
      U32x4(address + column * kBytesOfT).v[0] = unit;
      return;
    }
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      store_t(address, column + i, first[i]);
      store_t(address, column + 4 + i, second[i]);
    }
    return;
  }
  uint64_t partial = uint64_t(sequence.first_partial) + (token * p.num_heads + head) * sequence.num_splits + first_split;
  uint64_t address = p.partial_sums + (partial * kHeadDim + column) * 4;
  F32x4(address).v[0] = first;
  F32x4(address + 16).v[0] = second;
  if (column != 0) return;
  F32 stats = F32(p.partial_stats + partial * 8);
  stats.v[0] = largest_scores[row];
  stats.v[1] = weight_sums[row];
}

// Hands on the sums, a fragment at a time, through the subgroup's part of what held scores.
void store_totals() {
  uint own_scratch = gl_SubgroupID * (kSide * kSide / 4);
  [[unroll]] for (uint i = 0; i < kOwnSums; ++i) {
    uint first_row = i / kColumnFragments * kSide, first_column = own_column() + i % kColumnFragments * kSide;
    if (first_column >= kHeadDim) continue;
    subgroupBarrier();
    coopMatStore(totals[i], scores, own_scratch, kSide / 4, gl_CooperativeMatrixLayoutRowMajor);
    subgroupBarrier();
    for (uint at = gl_SubgroupInvocationID; at < kSide * (kSide / kUnit); at += kSubgroupSize) {
      uint row = first_row + at / 2;
      if (row >= num_queries) continue;
      vec4 first = uintBitsToFloat(scores[own_scratch + 2 * at]), second = uintBitsToFloat(scores[own_scratch + 2 * at + 1]);
      store_unit(row, first_column + at % 2 * kUnit, first, second);
    }
  }
}

void main() {
  if (!find_tile()) return;
  [[unroll]] for (uint i = 0; i < kOwnSums; ++i) totals[i] = SUMS(0.0);
  float total_largest = NO_SCORE, total_sum = 0.0;  // of the row that this invocation weighs keys for
  find_keys(first_split * kSplitKeys);
  fetch_first_keys(first_split * kSplitKeys);
  stage_queries();
  barrier();
  for (uint split = first_split; split < end_split; ++split) {
    uint first_key = split * kSplitKeys;
    score_keys(first_key);
    fetch_first_values(first_key);
    barrier();
    weigh_keys(first_key, total_largest, total_sum);
    barrier();
    SUMS sums[kOwnSums];
    sum_values(first_key, sums);
    if (split + 1 < end_split) {
      find_keys(first_key + kSplitKeys);
      fetch_first_keys(first_key + kSplitKeys);
    }
    fold_values(sums);
    barrier();  // the scores may be overwritten
  }
  store_totals();
}

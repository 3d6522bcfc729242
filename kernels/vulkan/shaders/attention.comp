#version 460
// attention of ops.h: a workgroup sums up one split of kSplitKeys keys, or all splits, for a tile of up to kRows query rows of
// one kv head. If one split is not all, partial sums are left, which attention_reduce.comp adds.
//
// A row's bits do not depend on the tile's size, on its neighbours, or on who adds the splits:
//   a score is one chain of fma over ascending elements, whoever computes it;
//   a split's weights are e^(score - its largest), added up as 16 sums of 8, and its values in one chain of fma over its keys;
//   splits are added in ascending order by attention_fold.glsl. Keys that a row does not see have a weight of 0 exactly.
#include "common.glsl"
#include "units.glsl"
#include "push_attention.h"
#include "attention_fold.glsl"
#include "attention_sequence.glsl"

layout(constant_id = 1) const uint kHeadDim = 256;
layout(constant_id = 2) const uint kQuads = 2;          // of rows of a tile; divides 128
layout(constant_id = 3) const uint kSlice = 32;         // elements of keys and queries that are staged together
layout(constant_id = 4) const uint kColumnThreads = 128;  // side by side over the columns of values
layout(constant_id = 5) const uint kColumns = 2;        // of an invocation: 1, 2 or 4
layout(constant_id = 6) const uint kQuadsPerThread = 1;  // row quads of an invocation
layout(constant_id = 7) const uint kAligned = 1;        // whether rows and heads begin at 16 bytes and are made of whole units

layout(push_constant, scalar) uniform Push { AttentionPush p; };

const uint kRows = 4 * kQuads;
const uint kSums = kQuadsPerThread * kColumns;  // row quads of values
const uint kKeyThreads = kAttentionInvocations / kQuads;
const uint kKeysPerThread = kSplitKeys / kKeyThreads;
const uint kUnitsPerRow = kSlice / kUnit;
const uint kStagedRows = kSplitKeys + kRows;
const uint kStagedUnits = kStagedRows * kUnitsPerRow;
const uint kUnitsPerThread = (kStagedUnits + kAttentionInvocations - 1) / kAttentionInvocations;
const uint kStagedStride = kSlice / 4 + 1;  // quads; odd, so that rows lie in different banks
const uint kBatch = kColumns == 4 ? 8 : 32;  // keys whose values are loaded together
const uint kSumParts = 16;
const uint kNoPlace = 0xffffffffu;

shared vec4 staged[kStagedRows * kStagedStride];  // between the slices: largest scores, then sums, by part and row quad
shared vec4 weights[kSplitKeys * kQuads];         // [key][row quad]
shared uint key_places[kSplitKeys];               // rows of the cache
shared uint64_t query_rows[kRows];                // addresses; 0 behind the tile's last
shared vec4 total_largest[kQuads], total_sum[kQuads], split_largest[kQuads];
shared vec4 keep_factors[kQuads], split_factors[kQuads];

#include "attention_tile.glsl"

void find_queries() {
  uint t = gl_LocalInvocationID.x;
  if (t < kQuads) {
    total_largest[t] = vec4(NO_SCORE);
    total_sum[t] = vec4(0.0);
  }
  if (t >= kRows) return;
  uint query = first_query + t, token = query / group;
  uint64_t column = uint64_t(kv_head * group + query - token * group) * kHeadDim;
  query_rows[t] = t < num_queries ? p.q + (uint64_t(sequence.first_row + token) * p.q_stride + column) * kBytesOfT : 0;
}

// Where the keys of a split are; the first is always there.
void find_keys(uint first_key) {
  for (uint i = gl_LocalInvocationID.x; i < kSplitKeys; i += kAttentionInvocations) {
    uint position = first_key + i;
    uint place = kNoPlace;
    if (position < num_visible) {
      uint block = position / p.block_tokens;
      uint id = U32(p.blocks).v[sequence.first_block + block];
      place = (id * p.num_kv_heads + kv_head) * p.block_tokens + position - block * p.block_tokens;
    }
    key_places[i] = place;
  }
  barrier();
}

uint64_t cache_row(uint64_t base, uint place) { return base + uint64_t(place) * (kHeadDim * kBytesOfT); }

// Staged rows are the split's keys, then the tile's queries: row r of a tile at (r mod 4) * kQuads + r / 4, where the lanes
// that read row quads side by side find them in different banks.
uint64_t staged_row(uint row) {
  if (row < kSplitKeys) return key_places[row] == kNoPlace ? 0 : cache_row(p.keys, key_places[row]);
  uint query = row - kSplitKeys;
  return query_rows[query % kQuads * 4 + query / kQuads];
}

void fetch_slice(uint first_element, out uvec4 units[kUnitsPerThread]) {
  [[unroll]] for (uint i = 0; i < kUnitsPerThread; ++i) {
    uint unit = gl_LocalInvocationID.x + i * kAttentionInvocations;
    units[i] = uvec4(0);
    if (unit >= kStagedUnits) continue;
    uint64_t row = staged_row(unit / kUnitsPerRow);
    if (row != 0) units[i] = load_unit(row, first_element + unit % kUnitsPerRow * kUnit, kHeadDim, kAligned != 0);
  }
}

void stage_slice(uvec4 units[kUnitsPerThread]) {
  [[unroll]] for (uint i = 0; i < kUnitsPerThread; ++i) {
    uint unit = gl_LocalInvocationID.x + i * kAttentionInvocations;
    if (unit >= kStagedUnits) continue;
    uint at = unit / kUnitsPerRow * kStagedStride + unit % kUnitsPerRow * (kUnit / 4);
    for (uint quad = 0; quad < kUnit / 4; ++quad) staged[at + quad] = unit_quad(units[i], quad);
  }
}

// The products of a row quad's queries with key_thread + j * kKeyThreads, for every j.
void multiply_keys(uint row_quad, uint key_thread, out vec4 dots[kKeysPerThread]) {
  [[unroll]] for (uint j = 0; j < kKeysPerThread; ++j) dots[j] = vec4(0.0);
  uvec4 units[kUnitsPerThread], next_units[kUnitsPerThread];  // two slices are on their way
  fetch_slice(0, units);
  fetch_slice(kSlice, next_units);
  for (uint first = 0; first < kHeadDim; first += kSlice) {
    barrier();
    stage_slice(units);
    barrier();
    [[unroll]] for (uint i = 0; i < kUnitsPerThread; ++i) units[i] = next_units[i];
    if (first + 2 * kSlice < kHeadDim) fetch_slice(first + 2 * kSlice, next_units);
    for (uint d = 0; d < kSlice / 4; ++d) {
      vec4 queries[4];
      [[unroll]] for (uint i = 0; i < 4; ++i) queries[i] = staged[(kSplitKeys + i * kQuads + row_quad) * kStagedStride + d];
      [[unroll]] for (uint j = 0; j < kKeysPerThread; ++j) {
        vec4 key = staged[(key_thread + j * kKeyThreads) * kStagedStride + d];
        [[unroll]] for (uint c = 0; c < 4; ++c) {
          vec4 column = vec4(queries[0][c], queries[1][c], queries[2][c], queries[3][c]);
          precise vec4 dot = fma(column, vec4(key[c]), dots[j]);
          dots[j] = dot;
        }
      }
    }
  }
}

// The largest of the split's scores, to all invocations of the row quad; 1 + log2(subgroup) exchanges.
vec4 largest_score(vec4 largest, uint row_quad) {
  for (uint step = kQuads; step < gl_SubgroupSize; step *= 2) largest = max(largest, subgroupShuffleXor(largest, step));
  uint part_size = max(gl_SubgroupSize, kQuads);
  uint index = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
  barrier();
  if (index % part_size < kQuads) staged[index / part_size * kQuads + row_quad] = largest;
  barrier();
  uint num_parts = kAttentionInvocations / part_size;
  for (uint part = 0; part < num_parts; ++part) largest = max(largest, staged[part * kQuads + row_quad]);
  return largest;
}

// Makes the scores of a split, their largest, and the weights.
void weigh_keys(uint first_key) {
  uint t = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
  uint row_quad = t % kQuads, key_thread = t / kQuads;
  vec4 scores[kKeysPerThread];
  multiply_keys(row_quad, key_thread, scores);
  uvec4 positions;
  [[unroll]] for (uint i = 0; i < 4; ++i) positions[i] = last_position(4 * row_quad + i);
  vec4 largest = vec4(NO_SCORE);
  [[unroll]] for (uint j = 0; j < kKeysPerThread; ++j) {
    uint position = first_key + key_thread + j * kKeyThreads;
    precise vec4 scaled = scores[j] * p.scale;
    scores[j] = mix(scaled, vec4(NO_SCORE), greaterThan(uvec4(position), positions));
    largest = max(largest, scores[j]);
  }
  largest = largest_score(largest, row_quad);
  [[unroll]] for (uint j = 0; j < kKeysPerThread; ++j) {
    uint position = first_key + key_thread + j * kKeyThreads;
    vec4 weight = weight_of(scores[j], largest);
    weights[(key_thread + j * kKeyThreads) * kQuads + row_quad] =
        mix(weight, vec4(0.0), greaterThan(uvec4(position), positions));
  }
  if (key_thread == 0) split_largest[row_quad] = largest;
  barrier();
}

// Leaves the weights' sums in staged, [kSumParts][row quad]; a part has every kSumParts-th key.
void sum_weight_parts() {
  for (uint t = gl_LocalInvocationID.x; t < kSumParts * kQuads; t += kAttentionInvocations) {
    uint part = t / kQuads;
    precise vec4 sum = vec4(0.0);
    for (uint key = part; key < kSplitKeys; key += kSumParts) sum += weights[key * kQuads + t % kQuads];
    staged[t] = sum;
  }
}

// kColumns values of a row of the cache, in as few loads as alignment allows.
void load_values(uint64_t row, uint column, out float values[kColumns]) {
#ifdef T_BF16
  if (kAligned != 0 && kColumns > 1) {
    [[unroll]] for (uint c = 0; c + 1 < kColumns; c += 2) {
      uint pair = U32(row + (column + c) * 2).v[0];
      values[c] = uintBitsToFloat(pair << 16);
      values[c + 1] = uintBitsToFloat(pair & 0xffff0000u);
    }
    return;
  }
#endif
  [[unroll]] for (uint c = 0; c < kColumns; ++c) values[c] = column + c < kHeadDim ? load_t(row, column + c) : 0.0;
}

// The split's weighted values: sums[q * kColumns + c] of row quad first_quad + q and column + c.
void sum_values(uint num_keys, uint first_quad, uint column, out vec4 sums[kSums]) {
  [[unroll]] for (uint i = 0; i < kSums; ++i) sums[i] = vec4(0.0);
  if (first_quad >= kQuads || column >= kHeadDim) return;
  for (uint first = 0; first < num_keys; first += kBatch) {
    float values[kBatch][kColumns];
    [[unroll]] for (uint j = 0; j < kBatch; ++j) {
      uint place = key_places[first + j] == kNoPlace ? key_places[0] : key_places[first + j];
      load_values(cache_row(p.values, place), column, values[j]);
    }
    [[unroll]] for (uint j = 0; j < kBatch; ++j) {
      [[unroll]] for (uint q = 0; q < kQuadsPerThread; ++q) {
        vec4 weight = weights[(first + j) * kQuads + first_quad + q];
        [[unroll]] for (uint c = 0; c < kColumns; ++c) {
          precise vec4 sum = fma(weight, vec4(values[j][c]), sums[q * kColumns + c]);
          sums[q * kColumns + c] = sum;
        }
      }
    }
  }
}

// Takes the split into the rows' largest scores and sums of weights, and says with what factors its values are taken in.
void fold_weights() {
  barrier();
  uint t = gl_LocalInvocationID.x;
  if (t < kQuads) {
    precise vec4 sum = vec4(0.0);
    for (uint part = 0; part < kSumParts; ++part) sum += staged[part * kQuads + t];
    vec4 largest = max(total_largest[t], split_largest[t]);
    vec4 keep = weight_of(total_largest[t], largest), weight = weight_of(split_largest[t], largest);
    total_sum[t] = fold(total_sum[t], keep, sum, weight);
    total_largest[t] = largest;
    keep_factors[t] = keep;
    split_factors[t] = weight;
  }
  barrier();
}

// A row of the result, or of the partial sums.
void store_row(uint query, uint column, float sums[kColumns], float weight_sum) {
  uint token = (first_query + query) / group, head = kv_head * group + (first_query + query) % group;
  if (is_whole) {
    uint64_t row = p.result + (uint64_t(sequence.first_row + token) * p.result_stride + head * kHeadDim) * kBytesOfT;
    float inverse = 1.0 / weight_sum;
    [[unroll]] for (uint c = 0; c < kColumns; ++c) {
      if (column + c < kHeadDim) store_t(row, column + c, sums[c] * inverse);
    }
    return;
  }
  uint64_t partial = uint64_t(sequence.first_partial) + (token * p.num_heads + head) * sequence.num_splits + first_split;
  [[unroll]] for (uint c = 0; c < kColumns; ++c) {
    if (column + c < kHeadDim) F32(p.partial_sums + (partial * kHeadDim + column + c) * 4).v[0] = sums[c];
  }
  if (column != 0) return;
  F32 stats = F32(p.partial_stats + partial * 8);
  stats.v[0] = total_largest[query / 4][query % 4];
  stats.v[1] = weight_sum;
}

void main() {
  if (!find_tile()) return;
  find_queries();
  uint column = gl_LocalInvocationID.x % kColumnThreads * kColumns;
  uint first_quad = gl_LocalInvocationID.x / kColumnThreads * kQuadsPerThread;
  vec4 totals[kSums];
  [[unroll]] for (uint i = 0; i < kSums; ++i) totals[i] = vec4(0.0);

  for (uint split = first_split; split < end_split; ++split) {
    uint first_key = split * kSplitKeys;
    find_keys(first_key);
    weigh_keys(first_key);
    sum_weight_parts();
    vec4 sums[kSums];
    sum_values(min(kSplitKeys, num_visible - first_key), first_quad, column, sums);
    fold_weights();
    [[unroll]] for (uint q = 0; q < kQuadsPerThread; ++q) {
      if (first_quad + q >= kQuads) continue;
      vec4 keep = keep_factors[first_quad + q], weight = split_factors[first_quad + q];
      [[unroll]] for (uint c = 0; c < kColumns; ++c)
        totals[q * kColumns + c] = fold(totals[q * kColumns + c], keep, sums[q * kColumns + c], weight);
    }
  }

  if (column >= kHeadDim) return;
  [[unroll]] for (uint q = 0; q < kQuadsPerThread; ++q) {
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      uint query = 4 * (first_quad + q) + i;
      if (query >= num_queries) continue;
      float row[kColumns];
      [[unroll]] for (uint c = 0; c < kColumns; ++c) row[c] = totals[q * kColumns + c][i];
      store_row(query, column, row, total_sum[query / 4][i]);
    }
  }
}

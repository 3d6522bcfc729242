#version 460
// The first dispatch of gated_delta_rule's chunk form: what depends on no state. A workgroup has a chunk and a key head, and
// makes T, M and the factors of all value heads that share it; with MATRICES as delta_chunk_scan_matrix.comp takes them, and
// copies of keys and queries.
#include "common.glsl"
#include "units.glsl"
#include "exponential.glsl"
#include "push_delta.h"
#include "delta_chunk.glsl"

const float kNormEps = 1e-6;
const uint kSide = 16;                          // invocations along rows, and along columns
const uint kTile = kMaxChunk / kSide;           // rows and columns of an invocation, kSide apart
const uint kTriangleStride = kMaxChunk / 4 + 1;  // quads

// Below the diagonal A; above it the transposed inverse of I + A, whose diagonal is ones: T_rs is at [s, r].
shared vec4 triangles[kMaxChunk * kTriangleStride];
shared float squares[kStagedRows];  // of keys and queries, then what they are to be multiplied with
shared float decay_sums[kMaxChunk], betas[kMaxChunk];
shared vec4 decays[kMaxChunk / 4];

#ifdef MATRICES
// Copies the elements [first, first + kSlice) of keys and queries, which have just been staged, and transposes the keys, as
// fragments of kSide rows of kSlice elements.
void store_copies(uint64_t copies, uint first, uvec4 units[kUnitsPerThread]) {
  const uint kFragmentBytes = kSide * kSlice * 2;
  uint first_fragment = first / kSlice;
  [[unroll]] for (uint i = 0; i < kUnitsPerThread; ++i) {
    uint unit = gl_LocalInvocationID.x + i * kChunkInvocations, row = unit / kUnitsPerRow;
    uint fragment = row / kSide * (kChunkDim / kSlice) + first_fragment;
    uint64_t to = copies + fragment * kFragmentBytes + row % kSide * (kSlice * 2);
    U32x4(to + unit % kUnitsPerRow * 16).v[0] = units[i];
  }
  uint dim = gl_LocalInvocationID.x / (kMaxChunk / 4), quad = gl_LocalInvocationID.x % (kMaxChunk / 4);
  uvec4 bits;
  [[unroll]] for (uint i = 0; i < 4; ++i) bits[i] = floatBitsToUint(staged[(4 * quad + i) * kStride + dim / 4][dim % 4]) >> 16;
  uint fragment = first_fragment * (kMaxChunk / kSide) + quad / 4;
  uint64_t to = copies + 2 * kCopyBytes + fragment * kFragmentBytes + dim * (kSide * 2);
  U32x2(to + quad % 4 * 8).v[0] = bits.xz | bits.yw << 16;
}
#endif

// Element [r, s] of T or M, of which rows begin at `triangle`.
void store_element(uint64_t triangle, uint r, uint s, float x) {
#ifdef MATRICES
  uint band = r / kSide;
  if (s / kSide > band) return;
  uint64_t at = triangle + (band * (band + 1) / 2 + s / kSide) * (kTerms * kTermBytes) + (r % kSide * kSide + s % kSide) * 2;
  [[unroll]] for (uint term = 0; term < kTerms; ++term)
    U16(at + term * kTermBytes).v[0] = uint16_t(next_term(x) >> 16);
#else
  F32(triangle + (r * kMaxChunk + s) * 4).v[0] = x;
#endif
}

// products[0] of keys and keys, products[1] of queries and keys: rows row + kSide i, columns column + kSide j.
void multiply_rows(uint chunk_idx, uint k_head, uint row, uint column, out float products[2][kTile][kTile]) {
  [[unroll]] for (uint i = 0; i < kTile; ++i) {
    [[unroll]] for (uint j = 0; j < kTile; ++j) products[0][i][j] = products[1][i][j] = 0.0;
  }
  uint t = gl_LocalInvocationID.x;
  float square_sum = 0.0;
  uvec4 units[kUnitsPerThread];
  fetch_keys_and_queries(k_head, 0, units);
  for (uint first = 0; first < kChunkDim; first += kSlice) {
    barrier();
    stage_keys_and_queries(units);
    barrier();
#ifdef MATRICES
    store_copies(p.copies + (uint64_t(chunk_idx) * p.num_k_heads + k_head) * (3 * kCopyBytes), first, units);
#endif
    if (first + kSlice < kChunkDim) fetch_keys_and_queries(k_head, first + kSlice, units);
    for (uint d = 0; d < kSlice / 4; ++d) {
      if (t < kStagedRows) square_sum += dot(staged[t * kStride + d], staged[t * kStride + d]);
      vec4 columns[kTile];
      [[unroll]] for (uint j = 0; j < kTile; ++j) columns[j] = staged[(column + j * kSide) * kStride + d];
      [[unroll]] for (uint which = 0; which < 2; ++which) {
        [[unroll]] for (uint i = 0; i < kTile; ++i) {
          vec4 x = staged[(which * kMaxChunk + row + i * kSide) * kStride + d];
          [[unroll]] for (uint j = 0; j < kTile; ++j) {
            [[unroll]] for (uint c = 0; c < 4; ++c) products[which][i][j] = fma(x[c], columns[j][c], products[which][i][j]);
          }
        }
      }
    }
  }
  if (t < kStagedRows) squares[t] = 1.0 / sqrt(square_sum + kNormEps) * (t < kMaxChunk ? 1.0 : 1.0 / sqrt(float(kChunkDim)));
}

// The chunk's gates of a value head: beta and the sums of decays, of which the last is repeated.
void load_gates(uint v_head) {
  uint t = gl_LocalInvocationID.x;
  barrier();
  if (t < kMaxChunk) {
    uint64_t gate = ((uint64_t(chunk.first_row) + t) * p.num_v_heads + v_head) * 4;
    bool is_there = t < chunk.num_rows;
    decays[t / 4][t % 4] = is_there ? F32(p.decay + gate).v[0] : 0.0;
    betas[t] = is_there ? F32(p.beta + gate).v[0] : 0.0;
  }
  barrier();
  if (t < kMaxChunk) {
    float sum = 0.0;
    [[unroll]] for (uint quad = 0; quad < kMaxChunk / 4; ++quad) {
      vec4 next = decays[quad];
      [[unroll]] for (uint i = 0; i < 4; ++i) sum += 4 * quad + i <= t ? next[i] : 0.0;
    }
    decay_sums[t] = sum;
  }
  barrier();
}

// Writes A to shared memory and M to where the second dispatch finds it.
void make_triangles(float products[2][kTile][kTile], uint row, uint column, uint64_t triangle) {
  [[unroll]] for (uint i = 0; i < kTile; ++i) {
    [[unroll]] for (uint j = 0; j < kTile; ++j) {
      uint r = row + i * kSide, s = column + j * kSide;
      float factor = r < s ? 0.0 : accurate_exp(decay_sums[r] - decay_sums[s]) * squares[s];
      store_element(triangle, r, s, products[1][i][j] * squares[kMaxChunk + r] * factor);
      if (r > s) triangles[r * kTriangleStride + s / 4][s % 4] = betas[r] * (products[0][i][j] * squares[r]) * factor;
    }
  }
}

// Below, x is a block of 16 or 32 rows on the diagonal, and y the one behind it. T_xx and T_yy are inverses of their own, and
// T_yx = -T_yy A_yx T_xx.

// A quad of column c of the inverse, as far as it lies in rows first, first + 1, ... of block x.
vec4 inverse_quad(uint c, uint first) {
  uvec4 r = first + uvec4(0, 1, 2, 3);
  vec4 column = mix(triangles[c * kTriangleStride + first / 4], vec4(0.0), lessThan(r, uvec4(c)));
  return mix(column, vec4(1.0), equal(r, uvec4(c)));
}

// The blocks of 16, a column an invocation: T_rc = -sum over c <= s < r of A_rs T_sc.
void invert_blocks() {
  uint c = gl_LocalInvocationID.x, first = c / 16 * 16;
  if (c >= kMaxChunk) return;
  float column[16];
  [[unroll]] for (uint r = 0; r < 16; ++r) column[r] = first + r == c ? 1.0 : 0.0;
  [[unroll]] for (uint r = 1; r < 16; ++r) {
    float sum = 0.0;
    [[unroll]] for (uint quad = 0; quad <= (r - 1) / 4; ++quad) {
      vec4 row = triangles[(first + r) * kTriangleStride + first / 4 + quad];
      [[unroll]] for (uint i = 0; i < 4; ++i) {
        if (4 * quad + i < r) sum = fma(row[i], column[4 * quad + i], sum);
      }
    }
    if (first + r > c) column[r] = -sum;
  }
  [[unroll]] for (uint r = 1; r < 16; ++r) {
    if (first + r > c) triangles[c * kTriangleStride + (first + r) / 4][r % 4] = column[r];
  }
}

// Leaves A_yx T_xx of every pair of blocks of `size` rows in `staged`: [row of y, quad of columns of x].
void multiply_by_first(uint size) {
  uint t = gl_LocalInvocationID.x, quads = size / 4;
  if (t >= kMaxChunk / 2 * quads) return;
  uint row = t / quads, x = row / size * 2 * size, c = x + t % quads * 4;
  vec4 sums[4] = vec4[4](vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0));
  for (uint s = c; s < x + size; s += 4) {
    vec4 a = triangles[(x + size + row % size) * kTriangleStride + s / 4];
    [[unroll]] for (uint i = 0; i < 4; ++i) sums[i] = fma(a, inverse_quad(c + i, s), sums[i]);
  }
  vec4 dots;
  [[unroll]] for (uint i = 0; i < 4; ++i) dots[i] = (sums[i].x + sums[i].y) + (sums[i].z + sums[i].w);
  staged[t] = dots;
}

void multiply_by_second(uint size) {
  uint t = gl_LocalInvocationID.x, quads = size / 4;
  if (t >= kMaxChunk / 2 * quads) return;
  uint pair = t / (size * quads), y = pair * 2 * size + size;
  uint row = t % size, quad = t / size % quads;
  vec4 sum = staged[(pair * size + row) * quads + quad];
  for (uint s = 0; s < row; ++s) {
    float inverse = triangles[(y + s) * kTriangleStride + (y + row) / 4][row % 4];
    sum = fma(vec4(inverse), staged[(pair * size + s) * quads + quad], sum);
  }
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    triangles[(y - size + 4 * quad + i) * kTriangleStride + (y + row) / 4][row % 4] = -sum[i];
  }
}

// The inverse of I + A.
void invert() {
  barrier();
  invert_blocks();
  for (uint size = 16; size < kMaxChunk; size *= 2) {
    barrier();
    multiply_by_first(size);
    barrier();
    multiply_by_second(size);
  }
  barrier();
}

void store_inverse(uint64_t triangle) {
  for (uint i = gl_LocalInvocationID.x; i < kMaxChunk * kMaxChunk; i += kChunkInvocations) {
    uint r = i / kMaxChunk, s = i % kMaxChunk;
    float inverse = r == s ? 1.0 : 0.0;
    if (r > s) inverse = triangles[s * kTriangleStride + r / 4][r % 4];
    store_element(triangle, r, s, inverse * betas[s]);
  }
}

void store_factors(uint64_t prepared) {
  uint t = gl_LocalInvocationID.x;
  if (t >= kMaxChunk) return;
  F32 factors = F32(prepared + kFactorsAt);
  float decay = accurate_exp(decay_sums[t]);
  factors.v[t] = squares[t] * decay;
  factors.v[kMaxChunk + t] = squares[kMaxChunk + t] * decay;
  factors.v[2 * kMaxChunk + t] = squares[t] * accurate_exp(decay_sums[kMaxChunk - 1] - decay_sums[t]);
  if (t == kMaxChunk - 1) factors.v[kChunkWholeDecay] = decay;
}

void main() {
  uint chunk_idx = workgroup_row() / p.num_k_heads, k_head = workgroup_row() - chunk_idx * p.num_k_heads;
  if (chunk_idx >= p.num_chunks) return;
  chunk = DeltaChunks(p.chunks).v[chunk_idx];
  uint row = gl_LocalInvocationID.x / kSide, column = gl_LocalInvocationID.x % kSide;
  float products[2][kTile][kTile];
  multiply_rows(chunk_idx, k_head, row, column, products);
  uint shared_by = p.num_v_heads / p.num_k_heads;
  for (uint v_head = k_head * shared_by; v_head < (k_head + 1) * shared_by; ++v_head) {
    uint64_t prepared = prepared_of(chunk_idx, v_head);
    load_gates(v_head);
    make_triangles(products, row, column, prepared + kMAt);
    invert();
    store_inverse(prepared + kTAt);
    store_factors(prepared);
  }
}

// What both dispatches of the chunk form share (arXiv 2412.06464). For the tokens r, s of a chunk, G_r the sum of the decays up
// to and including r, q and k normalised, and S the state before the chunk:
//   A_rs = beta_r (k_r . k_s) e^(G_r - G_s) for r > s        M_rs = (q_r . k_s) e^(G_r - G_s) for r >= s
//   T = (I + A)^-1 diag(beta)                                N = T (V - diag(e^G) K S)
//   O = diag(e^G) Q S + M N                                  S <- e^(G_last) S + sum_s e^(G_last - G_s) k_s N_s^T
// N holds the corrections that the recurrence calls delta. Rows behind the chunk's last are zeros.
//
// Rows of q and k are staged as they are in qkv, with their norms' inverses in the factors of what they make.

layout(constant_id = 1) const uint kAligned = 1;  // whether rows of qkv begin at 16 bytes

layout(push_constant, scalar) uniform Push { DeltaRulePush p; };

layout(buffer_reference, scalar, buffer_reference_align = 4) readonly buffer DeltaChunks { DeltaChunk v[]; };

const uint kSlice = 16;                    // elements of q and k, or columns of T and M, that are staged together
const uint kStride = kSlice / 4 + 1;       // quads; odd, so that rows lie in different banks
const uint kStagedRows = 2 * kMaxChunk;    // the chunk's keys, then its queries
const uint kUnitsPerRow = kSlice / kUnit;
const uint kUnitsPerThread = kStagedRows * kUnitsPerRow / kChunkInvocations;

shared vec4 staged[kStagedRows * kStride];

DeltaChunk chunk;

uint64_t token_row(uint row) { return p.qkv + (uint64_t(chunk.first_row) + row) * p.qkv_stride * kBytesOfT; }

#ifdef MATRICES
const uint kPreparedBytes = kTermsBytes, kTAt = 0, kMAt = kTriangleBytes, kFactorsAt = kTermsFactors;
#else
const uint kPreparedBytes = kChunkFloats * 4, kTAt = kChunkT * 4, kMAt = kChunkM * 4, kFactorsAt = kChunkFactors * 4;
#endif

uint64_t prepared_of(uint chunk_idx, uint v_head) {
  return p.prepared + (uint64_t(chunk_idx) * p.num_v_heads + v_head) * kPreparedBytes;
}

void fetch_keys_and_queries(uint k_head, uint first_element, out uvec4 units[kUnitsPerThread]) {
  [[unroll]] for (uint i = 0; i < kUnitsPerThread; ++i) {
    uint unit = gl_LocalInvocationID.x + i * kChunkInvocations;
    uint row = unit / kUnitsPerRow, token = row % kMaxChunk;
    uint head = row < kMaxChunk ? p.num_k_heads + k_head : k_head;
    units[i] = uvec4(0);
    if (token >= chunk.num_rows) continue;
    uint element = head * kChunkDim + first_element + unit % kUnitsPerRow * kUnit;
    units[i] = load_unit(token_row(token), element, p.qkv_columns, kAligned != 0);
  }
}

void stage_keys_and_queries(uvec4 units[kUnitsPerThread]) {
  [[unroll]] for (uint i = 0; i < kUnitsPerThread; ++i) {
    uint unit = gl_LocalInvocationID.x + i * kChunkInvocations;
    uint at = unit / kUnitsPerRow * kStride + unit % kUnitsPerRow * (kUnit / 4);
    [[unroll]] for (uint quad = 0; quad < kUnit / 4; ++quad) staged[at + quad] = unit_quad(units[i], quad);
  }
}

#ifdef MATRICES
// Takes the upper half of x, a bf16, off x, and returns its bits. Three times that is all there is of the 24 bits of x.
uint next_term(inout float x) {
  uint bits = floatBitsToUint(x) & 0xffff0000u;
  precise float rest = x - uintBitsToFloat(bits);
  x = rest;
  return bits;
}
#endif

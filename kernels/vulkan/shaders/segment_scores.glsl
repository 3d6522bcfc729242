// Scores of segment_attention.comp, and the weights that they become. A workgroup of 256.

layout(constant_id = 1) const uint kHeadDim = 64;

const uint kQuads = kAttentionTile / 4;  // of rows or keys; also how many keys are a quarter of them
const uint kDims = 8;                    // of queries and keys in shared memory

shared vec4 query_tile[kDims * kQuads], key_tile[kDims * kQuads];  // [dim, quad of rows or keys]
shared vec4 weights[kAttentionTile * kQuads];                      // [key, quad of rows]: scores, then their exponentials
shared float parts[4 * kAttentionTile];                            // [quarter of the keys, row]
shared float largest[kAttentionTile], total[kAttentionTile], rescale[kAttentionTile];  // of rows

// An element of a workgroup's head; 0 behind the last row and the last dimension.
float load_element(uint64_t matrix, uint stride, uint row, uint end_row, uint dim) {
  if (row >= end_row || dim >= kHeadDim) return 0.0;
  return load_t(matrix, uint64_t(row) * stride + gl_WorkGroupID.z * kHeadDim + dim);
}

// Scores of rows from `first_row` and keys from `first_key`: an invocation has a quad of rows and a quad of keys.
void score(uint first_row, uint first_key, uint end) {
  uint at = gl_LocalInvocationID.x % kAttentionTile, first_dim = gl_LocalInvocationID.x / kAttentionTile;
  uint row_quad = gl_LocalInvocationID.x % kQuads, key_quad = gl_LocalInvocationID.x / kQuads;
  vec4 sums[4] = vec4[4](vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0));
  for (uint dim = 0; dim < kHeadDim; dim += kDims) {
    barrier();
    for (uint d = first_dim; d < kDims; d += 4) {
      query_tile[d * kQuads + at / 4][at % 4] = load_element(p.q, p.q_stride, first_row + at, end, dim + d);
      key_tile[d * kQuads + at / 4][at % 4] = load_element(p.k, p.k_stride, first_key + at, end, dim + d);
    }
    barrier();
    for (uint d = 0; d < kDims; ++d) {
      vec4 q = query_tile[d * kQuads + row_quad], k = key_tile[d * kQuads + key_quad];
      [[unroll]] for (uint i = 0; i < 4; ++i) sums[i] += q * k[i];
    }
  }
  [[unroll]] for (uint i = 0; i < 4; ++i) weights[(4 * key_quad + i) * kQuads + row_quad] = sums[i] * p.scale;
  barrier();
}

// Turns the scores of the first `num_keys` keys into weights, and takes these into the rows' maxima and sums: an invocation has
// a row and a quarter of the keys.
void weigh(uint num_keys) {
  uint row = gl_LocalInvocationID.x % kAttentionTile, quarter = gl_LocalInvocationID.x / kAttentionTile;
  uint begin = quarter * kQuads, end = min(begin + kQuads, num_keys);
  float old_peak = largest[row], peak = old_peak, sum = 0.0;
  for (uint key = begin; key < end; ++key) peak = max(peak, weights[key * kQuads + row / 4][row % 4]);
  parts[gl_LocalInvocationID.x] = peak;
  barrier();
  for (uint i = 0; i < 4; ++i) peak = max(peak, parts[i * kAttentionTile + row]);
  for (uint key = begin; key < end; ++key) {
    float weight = accurate_exp(weights[key * kQuads + row / 4][row % 4] - peak);
    weights[key * kQuads + row / 4][row % 4] = weight;
    sum += weight;
  }
  barrier();  // everybody has read the parts
  parts[gl_LocalInvocationID.x] = sum;
  barrier();
  if (quarter == 0) {
    float scale = accurate_exp(old_peak - peak), new_total = total[row] * scale;
    for (uint i = 0; i < 4; ++i) new_total += parts[i * kAttentionTile + row];
    largest[row] = peak;
    total[row] = new_total;
    rescale[row] = scale;
  }
  barrier();
}

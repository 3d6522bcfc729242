#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/ref/ref_ops.h"

namespace ferry::ref {
namespace {

/// What a code of a group is multiplied by: a power of two, and so exact wherever the product is.
float unit_of(uint8_t exponent) {
  if (exponent == kKvNanExponent) return std::numeric_limits<float>::quiet_NaN();
  return exponent == 0 ? 0.0f : std::ldexp(1.0f, exponent - 127);
}

/// Row of `base` (the keys or the values) for one position of a sequence and one kv head, into `row`, [head_dim].
template <class T>
void read_row(const KvLayerView& cache, const std::byte* base, const int32_t* block_table, int64_t position, int64_t kv_head,
              std::vector<float>& row) {
  const int64_t block_id = block_table[position / cache.block_tokens], slot = position % cache.block_tokens;
  const std::byte* run = base + (block_id * cache.num_kv_heads + kv_head) * cache.run_bytes();
  if (cache.dtype != DType::kI8) {
    const T* values = reinterpret_cast<const T*>(run) + slot * cache.head_dim;
    for (std::size_t d = 0; d < row.size(); ++d) row[d] = to_float(values[d]);
    return;
  }
  const std::byte* codes = run + slot * cache.head_dim;
  const std::byte* exponents = run + cache.block_tokens * cache.head_dim + slot * kv_groups(cache.head_dim);
  for (int64_t begin = 0; begin < cache.head_dim; begin += kKvGroupCols) {
    const float unit = unit_of(static_cast<uint8_t>(exponents[begin / kKvGroupCols]));
    for (int64_t d = begin; d < std::min(begin + kKvGroupCols, cache.head_dim); ++d)
      row[static_cast<std::size_t>(d)] = static_cast<float>(static_cast<int8_t>(codes[d])) * unit;
  }
}

/// One query row of one head against the positions [0, num_keys): scores, their softmax, then the weighted values.
template <class T>
void attend(const KvLayerView& cache, const int32_t* block_table, int64_t kv_head, int64_t num_keys, const T* q, T* out) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(cache.head_dim));
  std::vector<float> scores(static_cast<std::size_t>(num_keys)), row(static_cast<std::size_t>(cache.head_dim));
  float largest = -std::numeric_limits<float>::infinity();
  for (int64_t position = 0; position < num_keys; ++position) {
    read_row<T>(cache, cache.keys.raw(), block_table, position, kv_head, row);
    float dot = 0.0f;
    for (int64_t d = 0; d < cache.head_dim; ++d) dot += to_float(q[d]) * row[static_cast<std::size_t>(d)];
    scores[static_cast<std::size_t>(position)] = dot * scale;
    largest = std::max(largest, dot * scale);
  }
  float total = 0.0f;
  for (float& score : scores) {
    score = std::exp(score - largest);
    total += score;
  }
  std::vector<float> sums(static_cast<std::size_t>(cache.head_dim));
  for (int64_t position = 0; position < num_keys; ++position) {
    read_row<T>(cache, cache.values.raw(), block_table, position, kv_head, row);
    for (std::size_t d = 0; d < sums.size(); ++d) sums[d] += scores[static_cast<std::size_t>(position)] * row[d];
  }
  for (std::size_t d = 0; d < sums.size(); ++d) out[d] = from_float<T>(sums[d] / total);
}

}  // namespace

void attention(ThreadPool&, const AttentionArgs& args) {
  check_same_shape(args.q, args.out);
  check_attention(args);
  const int64_t group = args.num_heads / args.cache.num_kv_heads;
  visit_dtype(args.q.dtype, [&]<class T>() {
    for (std::size_t s = 0; s < args.sequences.size(); ++s) {
      const SequenceSpan& span = args.sequences[s];
      for (int64_t t = 0; t < span.num_tokens; ++t) {
        for (int64_t head = 0; head < args.num_heads; ++head) {
          attend(args.cache, args.block_tables[s], head / group, span.num_past + t + 1,
                 args.q.row<T>(span.first_row + t) + head * args.cache.head_dim,
                 args.out.row<T>(span.first_row + t) + head * args.cache.head_dim);
        }
      }
    }
  });
}

}  // namespace ferry::ref

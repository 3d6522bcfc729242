#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/ref/ref_ops.h"

namespace ferry::ref {
namespace {

/// Row of `base` (the keys or the values) for one position of a sequence and one kv head.
template <class T>
const T* cached_row(const KvLayerView& cache, const std::byte* base, const int32_t* block_table, int64_t position,
                    int64_t kv_head) {
  const int64_t block_id = block_table[position / cache.block_tokens];
  const int64_t place = (block_id * cache.num_kv_heads + kv_head) * cache.block_tokens + position % cache.block_tokens;
  return reinterpret_cast<const T*>(base) + place * cache.head_dim;
}

/// One query row of one head against the positions [0, num_keys): scores, their softmax, then the weighted values.
template <class T>
void attend(const KvLayerView& cache, const int32_t* block_table, int64_t kv_head, int64_t num_keys, const T* q, T* out) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(cache.head_dim));
  std::vector<float> scores(static_cast<std::size_t>(num_keys));
  float largest = -std::numeric_limits<float>::infinity();
  for (int64_t position = 0; position < num_keys; ++position) {
    const T* key = cached_row<T>(cache, cache.keys.raw(), block_table, position, kv_head);
    float dot = 0.0f;
    for (int64_t d = 0; d < cache.head_dim; ++d) dot += to_float(q[d]) * to_float(key[d]);
    scores[static_cast<std::size_t>(position)] = dot * scale;
    largest = std::max(largest, dot * scale);
  }
  float total = 0.0f;
  for (float& score : scores) {
    score = std::exp(score - largest);
    total += score;
  }
  for (int64_t d = 0; d < cache.head_dim; ++d) {
    float sum = 0.0f;
    for (int64_t position = 0; position < num_keys; ++position) {
      const T* value = cached_row<T>(cache, cache.values.raw(), block_table, position, kv_head);
      sum += scores[static_cast<std::size_t>(position)] * to_float(value[d]);
    }
    out[d] = from_float<T>(sum / total);
  }
}

}  // namespace

void attention(ThreadPool&, const AttentionArgs& args) {
  check_same_shape(args.q, args.out);
  FERRY_CHECK(args.q.dtype == args.cache.dtype);
  FERRY_CHECK_EQ(args.q.cols, args.num_heads * args.cache.head_dim);
  FERRY_CHECK_EQ(args.num_heads % args.cache.num_kv_heads, 0);
  FERRY_CHECK_EQ(args.sequences.size(), args.block_tables.size());
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

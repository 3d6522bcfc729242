#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/segments.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/tile_matmul.h"

// Attention of rows to all rows of their segment, over tiles of keys counted from its first, with the running maximum and sum
// of arXiv 2205.14135. As in attention.cpp a register holds 16 rows, so that no sum runs across lanes and a row's arithmetic
// never depends on its neighbours:
//
//   S^T [keys, rows] = K [keys, head_dim] Q^T;   P = exp(S - max);   O [rows, head_dim] = alpha O + P^T V

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

constexpr int64_t kSegmentKeys = 64;
constexpr int64_t kTaskRows = 64;

/// Working memory of a task, one allocation cut into pieces.
struct SegmentMemory {
  explicit SegmentMemory(int64_t head_dim) : padded_dim(round_up_16(head_dim)) {
    float* next = thread_scratch((2 * kTaskRows + 2 * kSegmentKeys) * padded_dim + kSegmentKeys * kTaskRows + 3 * kTaskRows);
    const auto take = [&next](int64_t count) {
      float* piece = next;
      next += count;
      return piece;
    };
    queries = take(padded_dim * kTaskRows);
    keys = take(kSegmentKeys * padded_dim);
    values = take(kSegmentKeys * padded_dim);
    scores = take(kSegmentKeys * kTaskRows);
    sums = take(kTaskRows * padded_dim);
    row_max = take(kTaskRows);
    row_sum = take(kTaskRows);
    row_alpha = take(kTaskRows);
  }

  int64_t padded_dim;
  float* queries;    // [head_dim, lanes] scaled, transposed
  float* keys;       // [kSegmentKeys, padded_dim]
  float* values;     // [kSegmentKeys, padded_dim]
  float* scores;     // [kSegmentKeys, lanes], then the weights P
  float* sums;       // [rows, padded_dim] O before the division
  float* row_max;    // [lanes]
  float* row_sum;    // [lanes]
  float* row_alpha;  // [lanes] factor of what was summed before this tile
};

/// Widens one head's columns of rows [first, first + count) to fp32 rows of padded_dim, filled up with zeros.
template <class T>
void load_rows(const ConstMatrixView& rows, int64_t head_dim, int64_t head, int64_t first, int64_t count, float* to) {
  const int64_t padded_dim = round_up_16(head_dim);
  for (int64_t i = 0; i < count; ++i, to += padded_dim) {
    const T* from = row_of<T>(rows, first + i) + head * head_dim;
    for_each_vector(head_dim, [=](int64_t d, auto lanes) { store(to + d, load(from + d, lanes)); });
  }
}

template <class T>
void load_queries(const SegmentAttentionArgs& args, const SegmentTask& task, int64_t lanes, int64_t head_dim, float* queries) {
  const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(head_dim));
  for (int64_t r = 0; r < lanes; ++r) {
    const T* q = r < task.num_rows ? row_of<T>(args.q, task.first_row + r) + task.head * head_dim : nullptr;
    for (int64_t d = 0; d < head_dim; ++d) queries[d * lanes + r] = q == nullptr ? 0.0f : widen(q[d]) * scale;
  }
}

/// Turns the scores of a tile into weights, and updates maximum, sum and alpha of every row.
void update_weights(const SegmentMemory& w, int64_t lanes, int64_t num_keys) {
  for (int64_t r = 0; r < lanes; r += kLanes) {
    float* scores = w.scores + r;
    const F32x16 old_max = load(w.row_max + r);
    F32x16 new_max = old_max;
    for (int64_t j = 0; j < num_keys; ++j) new_max = max(load(scores + j * lanes), new_max);
    F32x16 sum(0.0f);
    for (int64_t j = 0; j < num_keys; ++j) {
      const F32x16 weight = exp(load(scores + j * lanes) - new_max);
      store(scores + j * lanes, weight);
      sum = sum + weight;
    }
    const F32x16 alpha = exp(old_max - new_max);
    store(w.row_alpha + r, alpha);
    store(w.row_sum + r, fma(load(w.row_sum + r), alpha, sum));
    store(w.row_max + r, new_max);
  }
}

/// O = alpha O, where alpha is not one.
void rescale_sums(const SegmentMemory& w, int64_t num_rows) {
  for (int64_t r = 0; r < num_rows; ++r) {
    if (w.row_alpha[r] == 1.0f) continue;
    float* sums = w.sums + r * w.padded_dim;
    for (int64_t d = 0; d < w.padded_dim; d += kLanes) store(sums + d, load(sums + d) * w.row_alpha[r]);
  }
}

template <class T>
void attend(const SegmentAttentionArgs& args, const SegmentTask& task) {
  const int64_t head_dim = args.out.cols / args.num_heads, lanes = round_up_16(task.num_rows);
  const SegmentMemory w(head_dim);
  load_queries<T>(args, task, lanes, head_dim, w.queries);
  for (int64_t r = 0; r < lanes; r += kLanes) {
    store(w.row_max + r, F32x16(-__builtin_inff()));
    store(w.row_sum + r, F32x16(0.0f));
  }
  for (int64_t i = 0; i < task.num_rows * w.padded_dim; i += kLanes) store(w.sums + i, F32x16(0.0f));
  for (int64_t key = task.begin; key < task.end; key += kSegmentKeys) {
    const int64_t num_keys = task.end - key < kSegmentKeys ? task.end - key : kSegmentKeys;
    load_rows<T>(args.k, head_dim, task.head, key, num_keys, w.keys);
    tile_matmul({.a = w.keys,
                 .a_row_stride = w.padded_dim,
                 .a_k_stride = 1,
                 .b = w.queries,
                 .b_stride = lanes,
                 .c = w.scores,
                 .c_stride = lanes,
                 .m = num_keys,
                 .n = lanes,
                 .k = head_dim,
                 .c_scale = 0.0f});
    update_weights(w, lanes, num_keys);
    rescale_sums(w, task.num_rows);
    load_rows<T>(args.v, head_dim, task.head, key, num_keys, w.values);
    tile_matmul({.a = w.scores,
                 .a_row_stride = 1,
                 .a_k_stride = lanes,
                 .b = w.values,
                 .b_stride = w.padded_dim,
                 .c = w.sums,
                 .c_stride = w.padded_dim,
                 .m = task.num_rows,
                 .n = w.padded_dim,
                 .k = num_keys,
                 .c_scale = 1.0f});
  }
  for (int64_t r = 0; r < task.num_rows; ++r) {
    T* out = row_of<T>(args.out, task.first_row + r) + task.head * head_dim;
    const float* sums = w.sums + r * w.padded_dim;
    const F32x16 row_sum(w.row_sum[r]);
    for_each_vector(head_dim, [=](int64_t d, auto part) { store(out + d, load(sums + d) / row_sum, part); });
  }
}

}  // namespace

void segment_attention(ThreadPool& pool, const SegmentAttentionArgs& args) {
  check_segments(args);
  pool.parallel_for(count_segment_tasks(args, kTaskRows), [&](int64_t task_idx, int) {
    const SegmentTask task = find_segment_task(args, kTaskRows, task_idx);
    visit_dtype(args.out.dtype, [&]<class T>() { attend<T>(args, task); });
  });
}

}  // namespace ferry::FERRY_ISA_NAMESPACE

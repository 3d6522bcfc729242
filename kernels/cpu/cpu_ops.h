#pragma once

#include <cstdint>

#include "kernels/op_checks.h"
#include "kernels/ops.h"
#include "runtime/base/check.h"
#include "runtime/base/thread_pool.h"

// The ops of one instruction set, and what their sources share. Included only by files that are compiled once per
// instruction set: the namespace is part of the compile command. kernels/ops.h says what each op computes.

namespace ferry::FERRY_ISA_NAMESPACE {

void embed(ThreadPool& pool, const EmbedArgs& args);
void rms_norm(ThreadPool& pool, const RmsNormArgs& args);
void add(ThreadPool& pool, const AddArgs& args);
void multiply(ThreadPool& pool, const MultiplyArgs& args);
void gated_rms_norm(ThreadPool& pool, const GatedRmsNormArgs& args);
void rope(ThreadPool& pool, const RopeArgs& args);
void kv_append(ThreadPool& pool, const KvAppendArgs& args);
void attention(ThreadPool& pool, const AttentionArgs& args);
void sigmoid_gate(ThreadPool& pool, const SigmoidGateArgs& args);
void causal_conv1d(ThreadPool& pool, const CausalConv1dArgs& args);
void delta_gates(ThreadPool& pool, const DeltaGatesArgs& args);
void gated_delta_rule(ThreadPool& pool, const GatedDeltaRuleArgs& args);
void router_topk(ThreadPool& pool, const RouterTopkArgs& args);
void argmax(ThreadPool& pool, const ArgmaxArgs& args);
void swiglu(ThreadPool& pool, const SwigluArgs& args);
void gather_rows(ThreadPool& pool, const GatherRowsArgs& args);
void combine(ThreadPool& pool, const CombineArgs& args);
void shared_expert_merge(ThreadPool& pool, const SharedExpertMergeArgs& args);
void quantize_rows(ThreadPool& pool, const QuantizeRowsArgs& args);
void layer_norm(ThreadPool& pool, const LayerNormArgs& args);
void add_bias(ThreadPool& pool, const AddBiasArgs& args);
void vision_rope(ThreadPool& pool, const VisionRopeArgs& args);
void segment_attention(ThreadPool& pool, const SegmentAttentionArgs& args);

/// Row `r` of a view as elements of type T, which must be the view's dtype: the op checks that once, not per row.
template <class T>
[[gnu::always_inline]] inline const T* row_of(const ConstMatrixView& view, int64_t r) {
  return reinterpret_cast<const T*>(view.data) + r * view.row_stride;
}
template <class T>
[[gnu::always_inline]] inline T* row_of(const MatrixView& view, int64_t r) {
  return reinterpret_cast<T*>(view.data) + r * view.row_stride;
}

/// Work below which a task is not worth handing to another thread, in elements of a memory-bound op: about 10 us, or 2.5 us for
/// threads that are awake.
inline constexpr int64_t kTaskElements = 32768;
inline constexpr int64_t kAwakeTaskElements = 8192;

/// Runs fn(first, last) over pieces of [0, rows) on the pool. `row_elements` is what one row costs, in elements of a
/// memory-bound op. A call that costs less than a task is worth is one task, which the caller runs itself.
template <class Fn>
inline void parallel_rows(ThreadPool& pool, int64_t rows, int64_t row_elements, Fn&& fn) {
  const int64_t cost = rows * row_elements, worth = pool.waits_awake() ? kAwakeTaskElements : kTaskElements;
  const int64_t wanted = (cost + worth - 1) / worth;
  const int64_t most = int64_t{4} * pool.num_threads();  // a few a thread: slow threads take fewer
  const int64_t capped = wanted < most ? wanted : most;
  const int64_t num_tasks = capped < rows ? capped : rows;
  if (num_tasks <= 1) {
    if (rows > 0) fn(int64_t{0}, rows);
    return;
  }
  pool.parallel_for(num_tasks, [&fn, rows, num_tasks](int64_t task_idx, int) {
    fn(rows * task_idx / num_tasks, rows * (task_idx + 1) / num_tasks);
  });
}

}  // namespace ferry::FERRY_ISA_NAMESPACE

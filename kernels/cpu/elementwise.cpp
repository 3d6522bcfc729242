#include <math.h>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/simd.h"

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

// What an element costs beside one of a plain sum: an exponential and a division.
constexpr int64_t kSigmoidCost = 3;

template <class T>
void add_row(const T* a, const T* b, T* out, int64_t cols) {
  for_each_vector(cols, [=](int64_t i, auto lanes) { store(out + i, load(a + i, lanes) + load(b + i, lanes), lanes); });
}

template <class T>
void multiply_row(const T* a, const T* b, T* out, int64_t cols) {
  for_each_vector(cols, [=](int64_t i, auto lanes) { store(out + i, load(a + i, lanes) * load(b + i, lanes), lanes); });
}

template <class T>
void sigmoid_gate_row(const T* x, const T* gate, T* out, int64_t cols) {
  for_each_vector(cols, [=](int64_t i, auto lanes) {
    store(out + i, load(x + i, lanes) * rounded<T>(sigmoid(load(gate + i, lanes))), lanes);
  });
}

template <class T>
void swiglu_row(const T* gate, const T* up, T* out, int64_t cols) {
  for_each_vector(cols, [=](int64_t i, auto lanes) {
    store(out + i, rounded<T>(silu(load(gate + i, lanes))) * load(up + i, lanes), lanes);
  });
}

template <class T>
void shared_expert_merge_row(const T* routed, const T* shared, float gate, T* out, int64_t cols) {
  for_each_vector(cols, [=](int64_t i, auto lanes) {
    const F32x16 weighted = rounded<T>(load(shared + i, lanes) * gate);
    store(out + i, load(routed + i, lanes) + weighted, lanes);
  });
}

}  // namespace

void add(ThreadPool& pool, const AddArgs& args) {
  check_same_shape(args.a, args.out);
  check_same_shape(args.b, args.out);
  visit_dtype(args.out.dtype, [&]<class T>() {
    parallel_rows(pool, args.out.rows, args.out.cols, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        add_row(row_of<T>(args.a, r), row_of<T>(args.b, r), row_of<T>(args.out, r), args.out.cols);
      }
    });
  });
}

void multiply(ThreadPool& pool, const MultiplyArgs& args) {
  check_same_shape(args.a, args.out);
  check_same_shape(args.b, args.out);
  visit_dtype(args.out.dtype, [&]<class T>() {
    parallel_rows(pool, args.out.rows, args.out.cols, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        multiply_row(row_of<T>(args.a, r), row_of<T>(args.b, r), row_of<T>(args.out, r), args.out.cols);
      }
    });
  });
}

void sigmoid_gate(ThreadPool& pool, const SigmoidGateArgs& args) {
  check_same_shape(args.x, args.out);
  check_same_shape(args.gate, args.out);
  visit_dtype(args.out.dtype, [&]<class T>() {
    parallel_rows(pool, args.out.rows, args.out.cols * kSigmoidCost, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        sigmoid_gate_row(row_of<T>(args.x, r), row_of<T>(args.gate, r), row_of<T>(args.out, r), args.out.cols);
      }
    });
  });
}

void swiglu(ThreadPool& pool, const SwigluArgs& args) {
  const int64_t cols = args.out.cols;
  FERRY_CHECK_EQ(args.gate_up.cols, 2 * cols);
  FERRY_CHECK_EQ(args.gate_up.rows, args.out.rows);
  FERRY_CHECK(args.gate_up.dtype == args.out.dtype);
  visit_dtype(args.out.dtype, [&]<class T>() {
    parallel_rows(pool, args.out.rows, cols * kSigmoidCost, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        const T* gate_up = row_of<T>(args.gate_up, r);
        swiglu_row(gate_up, gate_up + cols, row_of<T>(args.out, r), cols);
      }
    });
  });
}

void shared_expert_merge(ThreadPool& pool, const SharedExpertMergeArgs& args) {
  check_same_shape(args.routed, args.out);
  check_same_shape(args.shared, args.out);
  FERRY_CHECK_EQ(args.gate.rows, args.out.rows);
  FERRY_CHECK_EQ(args.gate.cols, 1);
  FERRY_CHECK(args.gate.dtype == args.out.dtype);
  visit_dtype(args.out.dtype, [&]<class T>() {
    parallel_rows(pool, args.out.rows, args.out.cols, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        const float gate = rounded<T>(1.0f / (1.0f + expf(-widen(*row_of<T>(args.gate, r)))));
        shared_expert_merge_row(row_of<T>(args.routed, r), row_of<T>(args.shared, r), gate, row_of<T>(args.out, r),
                                args.out.cols);
      }
    });
  });
}

}  // namespace ferry::FERRY_ISA_NAMESPACE

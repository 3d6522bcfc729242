#include <cmath>

#include "kernels/ref/ref_ops.h"

namespace ferry::ref {

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }
float silu(float x) { return x / (1.0f + std::exp(-x)); }

void add(ThreadPool&, const AddArgs& args) {
  check_same_shape(args.a, args.out);
  check_same_shape(args.b, args.out);
  visit_dtype(args.out.dtype, [&]<class T>() {
    for (int64_t r = 0; r < args.out.rows; ++r) {
      for (int64_t c = 0; c < args.out.cols; ++c) {
        args.out.row<T>(r)[c] = from_float<T>(to_float(args.a.row<T>(r)[c]) + to_float(args.b.row<T>(r)[c]));
      }
    }
  });
}

void multiply(ThreadPool&, const MultiplyArgs& args) {
  check_same_shape(args.a, args.out);
  check_same_shape(args.b, args.out);
  visit_dtype(args.out.dtype, [&]<class T>() {
    for (int64_t r = 0; r < args.out.rows; ++r) {
      for (int64_t c = 0; c < args.out.cols; ++c) {
        args.out.row<T>(r)[c] = from_float<T>(to_float(args.a.row<T>(r)[c]) * to_float(args.b.row<T>(r)[c]));
      }
    }
  });
}

void sigmoid_gate(ThreadPool&, const SigmoidGateArgs& args) {
  check_same_shape(args.x, args.out);
  check_same_shape(args.gate, args.out);
  visit_dtype(args.out.dtype, [&]<class T>() {
    for (int64_t r = 0; r < args.out.rows; ++r) {
      for (int64_t c = 0; c < args.out.cols; ++c) {
        const float gate = round_to<T>(sigmoid(to_float(args.gate.row<T>(r)[c])));
        args.out.row<T>(r)[c] = from_float<T>(to_float(args.x.row<T>(r)[c]) * gate);
      }
    }
  });
}

void swiglu(ThreadPool&, const SwigluArgs& args) {
  const int64_t cols = args.out.cols;
  FERRY_CHECK_EQ(args.gate_up.cols, 2 * cols);
  FERRY_CHECK_EQ(args.gate_up.rows, args.out.rows);
  visit_dtype(args.out.dtype, [&]<class T>() {
    for (int64_t r = 0; r < args.out.rows; ++r) {
      const T* gate_up = args.gate_up.row<T>(r);
      for (int64_t c = 0; c < cols; ++c) {
        const float activated = round_to<T>(silu(to_float(gate_up[c])));
        args.out.row<T>(r)[c] = from_float<T>(activated * to_float(gate_up[cols + c]));
      }
    }
  });
}

void shared_expert_merge(ThreadPool&, const SharedExpertMergeArgs& args) {
  check_same_shape(args.routed, args.out);
  check_same_shape(args.shared, args.out);
  FERRY_CHECK_EQ(args.gate.rows, args.out.rows);
  FERRY_CHECK_EQ(args.gate.cols, 1);
  visit_dtype(args.out.dtype, [&]<class T>() {
    for (int64_t r = 0; r < args.out.rows; ++r) {
      const float gate = round_to<T>(sigmoid(to_float(args.gate.row<T>(r)[0])));
      for (int64_t c = 0; c < args.out.cols; ++c) {
        const float shared = round_to<T>(gate * to_float(args.shared.row<T>(r)[c]));
        args.out.row<T>(r)[c] = from_float<T>(to_float(args.routed.row<T>(r)[c]) + shared);
      }
    }
  });
}

}  // namespace ferry::ref

#include "kernels/op_checks.h"
#include "kernels/vulkan/ops/packs.h"
#include "kernels/vulkan/ops/vulkan_ops.h"
#include "kernels/vulkan/shaders/push_elementwise.h"
#include "runtime/base/check.h"

namespace ferry::vulkan {
namespace {

/// out = operation(a, b), and the row's element of `gate` where the operation has one.
void run(VulkanStream& stream, uint32_t operation, ConstMatrixView a, ConstMatrixView b, MatrixView out,
         ConstMatrixView gate = {}) {
  check_same_shape(a, out);
  check_same_shape(b, out);
  stream.reads(a);
  stream.reads(b);
  if (gate.data != nullptr) stream.reads(gate);
  stream.writes(out);
  const ElementwisePush push{.a = address_of(a),
                             .b = address_of(b),
                             .result = address_of(out),
                             .gate = address_of(gate),
                             .a_stride = stride_of(a),
                             .b_stride = stride_of(b),
                             .result_stride = stride_of(out),
                             .gate_stride = stride_of(gate),
                             .rows = static_cast<uint32_t>(out.rows),
                             .cols = static_cast<uint32_t>(out.cols)};
  stream.dispatch({find_shader("elementwise", out.dtype), {kElementInvocations, are_aligned({a, b, out}), operation}}, push,
                  grid_of_packs(out));
}

}  // namespace

void add(VulkanStream& stream, const AddArgs& args) { run(stream, kAdd, args.a, args.b, args.out); }

void multiply(VulkanStream& stream, const MultiplyArgs& args) { run(stream, kMultiply, args.a, args.b, args.out); }

void sigmoid_gate(VulkanStream& stream, const SigmoidGateArgs& args) { run(stream, kSigmoidGate, args.x, args.gate, args.out); }

void swiglu(VulkanStream& stream, const SwigluArgs& args) {
  const int64_t cols = args.out.cols;
  FERRY_CHECK_EQ(args.gate_up.cols, 2 * cols);
  run(stream, kSwiglu, args.gate_up.cols_from(0, cols), args.gate_up.cols_from(cols, cols), args.out);
}

void shared_expert_merge(VulkanStream& stream, const SharedExpertMergeArgs& args) {
  FERRY_CHECK_EQ(args.gate.rows, args.out.rows);
  FERRY_CHECK_EQ(args.gate.cols, 1);
  FERRY_CHECK(args.gate.dtype == args.out.dtype);
  run(stream, kSharedExpertMerge, args.routed, args.shared, args.out, args.gate);
}

}  // namespace ferry::vulkan

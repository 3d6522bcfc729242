#include <vector>

#include "kernels/ref/ref_ops.h"

namespace ferry::ref {
namespace {

/// One channel of one sequence: `inputs` is the stored history, then the replayed rows, then this step's.
template <class T>
void convolve_channel(const CausalConv1dArgs& args, std::size_t sequence_idx, int64_t channel) {
  const SequenceSpan& span = args.sequences[sequence_idx];
  const int64_t num_past = args.kernel - 1;
  T* state = num_past > 0 ? reinterpret_cast<T*>(args.states[sequence_idx]) + channel : nullptr;
  std::vector<T> inputs;
  for (int64_t j = 0; j < num_past; ++j) inputs.push_back(state[j * args.x.cols]);
  for (int64_t j = 0; j < span.num_replayed; ++j)
    inputs.push_back(reinterpret_cast<const T*>(args.held[sequence_idx])[j * args.x.cols + channel]);
  for (int64_t t = 0; t < span.num_tokens; ++t) inputs.push_back(args.x.row<T>(span.first_row + t)[channel]);

  for (int64_t t = 0; t < span.num_tokens; ++t) {
    float sum = 0.0f;
    for (int64_t tau = 0; tau < args.kernel; ++tau) {
      sum += args.weight.raw()[channel * args.kernel + tau] *
             to_float(inputs[static_cast<std::size_t>(span.num_replayed + t + tau)]);
    }
    const float y = round_to<T>(sum);
    args.out.row<T>(span.first_row + t)[channel] = from_float<T>(args.activation == Activation::kSilu ? silu(y) : y);
  }
  const int64_t num_taken = span.num_replayed + span.num_taken();
  for (int64_t j = 0; j < num_past; ++j) state[j * args.x.cols] = inputs[static_cast<std::size_t>(num_taken + j)];
}

}  // namespace

void causal_conv1d(ThreadPool&, const CausalConv1dArgs& args) {
  check_same_shape(args.x, args.out);
  FERRY_CHECK_GE(args.kernel, 1);
  FERRY_CHECK(args.kernel == 1 || args.states.size() == args.sequences.size());
  visit_dtype(args.x.dtype, [&]<class T>() {
    for (std::size_t s = 0; s < args.sequences.size(); ++s) {
      for (int64_t channel = 0; channel < args.x.cols; ++channel) convolve_channel<T>(args, s, channel);
    }
  });
}

}  // namespace ferry::ref

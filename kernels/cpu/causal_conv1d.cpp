#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/simd.h"

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

// A task's share: weights and K rows fit the first-level cache, and pieces of rows are long enough to stream (twice as fast as
// 256 channels on a prefill of 2048 tokens).
constexpr int64_t kBlockChannels = 1024;
constexpr int64_t kSmallestBlockChannels = 256;  // where there would be fewer blocks than threads
constexpr int64_t kMaxWeights = 4096;            // floats of transposed weights on a task's stack
constexpr int64_t kMaxKernel = kMaxWeights / kLanes;
constexpr int64_t kTokenCost = 3;    // what a token of a channel costs beside an element of a plain sum
constexpr int64_t kUsualKernel = 4;  // of every published Qwen3.5; its loops are unrolled

/// The inputs of one sequence for one block of channels, by time: before 0 are the replayed rows, and before them the state.
template <class T>
struct History {
  const T* state;      // [kernel - 1, channels], at the block's first channel
  const T* held;       // [num_replayed, channels], likewise
  int64_t channels;    // elements from one row of these to the next
  const T* x;          // the sequence's first row, at the block's first channel
  int64_t row_stride;  // elements from one row of x to the next
  int64_t num_past;    // kernel - 1
  int64_t num_replayed;

  const T* at(int64_t time) const {
    if (time >= 0) return x + time * row_stride;
    const int64_t replayed = num_replayed + time;
    return replayed >= 0 ? held + replayed * channels : state + (num_past + replayed) * channels;
  }
};

/// transposed[tau, c] = weight[c, tau] for the `width` channels of a block.
template <int64_t kKernel>
void transpose_weights(const float* weight, int64_t kernel, int64_t width, float* transposed) {
  const int64_t taps = kKernel > 0 ? kKernel : kernel;
  for (int64_t c = 0; c < width; ++c) {
    for (int64_t tau = 0; tau < taps; ++tau) transposed[tau * width + c] = weight[c * taps + tau];
  }
}

/// One token of one block. kKernel is the kernel where it is known at compile time, else 0.
template <class T, int64_t kKernel, Activation kActivation>
void convolve_token(const History<T>& history, int64_t time, const float* transposed, int64_t kernel, int64_t width, T* out) {
  const int64_t taps = kKernel > 0 ? kKernel : kernel;
  const T* inputs[kKernel > 0 ? kKernel : kMaxKernel];
  for (int64_t tau = 0; tau < taps; ++tau) inputs[tau] = history.at(time - taps + 1 + tau);
  for_each_vector(width, [&](int64_t c, auto lanes) {
    F32x16 sum(0.0f);
#pragma GCC unroll 4
    for (int64_t tau = 0; tau < taps; ++tau) {
      sum = fma(load(transposed + tau * width + c, lanes), load(inputs[tau] + c, lanes), sum);
    }
    const F32x16 y = rounded<T>(sum);
    if constexpr (kActivation == Activation::kSilu) {
      store(out + c, silu(y), lanes);
    } else {
      store(out + c, y, lanes);
    }
  });
}

/// Keeps the last kernel - 1 of the inputs up to the `num_taken`-th row. Rows move towards the front only, so ascending order
/// never overwrites a row still to be read.
template <class T>
void update_state(const History<T>& history, T* state, int64_t num_taken, int64_t width) {
  for (int64_t j = 0; j < history.num_past; ++j) {
    const T* source = history.at(num_taken - history.num_past + j);
    __builtin_memcpy(static_cast<void*>(state + j * history.channels), source, static_cast<std::size_t>(width) * sizeof(T));
  }
}

template <class T, int64_t kKernel, Activation kActivation>
void convolve_block(const CausalConv1dArgs& args, int64_t first_channel, int64_t width) {
  alignas(64) float transposed[kMaxWeights];
  transpose_weights<kKernel>(args.weight.raw() + first_channel * args.kernel, args.kernel, width, transposed);
  for (std::size_t s = 0; s < args.sequences.size(); ++s) {
    const SequenceSpan& span = args.sequences[s];
    if (span.num_tokens == 0) continue;
    T* state = args.kernel > 1 ? reinterpret_cast<T*>(args.states[s]) + first_channel : nullptr;
    const History<T> history{.state = state,
                             .held = span.num_replayed > 0 ? reinterpret_cast<const T*>(args.held[s]) + first_channel : nullptr,
                             .channels = args.x.cols,
                             .x = row_of<T>(args.x, span.first_row) + first_channel,
                             .row_stride = args.x.row_stride,
                             .num_past = args.kernel - 1,
                             .num_replayed = span.num_replayed};
    for (int64_t time = 0; time < span.num_tokens; ++time) {
      T* out = row_of<T>(args.out, span.first_row + time) + first_channel;
      convolve_token<T, kKernel, kActivation>(history, time, transposed, args.kernel, width, out);
    }
    update_state(history, state, span.num_taken(), width);
  }
}

}  // namespace

void causal_conv1d(ThreadPool& pool, const CausalConv1dArgs& args) {
  check_same_shape(args.x, args.out);
  FERRY_CHECK_GE(args.kernel, 1);
  FERRY_CHECK_LE(args.kernel, kMaxKernel);
  FERRY_CHECK(args.kernel == 1 || args.states.size() == args.sequences.size());
  int64_t num_tokens = 0;
  for (const SequenceSpan& span : args.sequences) {
    FERRY_CHECK_LE(span.first_row + span.num_tokens, args.x.rows);
    FERRY_CHECK(span.num_replayed == 0 || args.held.size() == args.sequences.size());
    num_tokens += span.num_tokens;
  }
  const int64_t fitting = kMaxWeights / args.kernel / kLanes * kLanes;
  int64_t block = fitting < kBlockChannels ? fitting : kBlockChannels;
  while (block >= 2 * kSmallestBlockChannels && args.x.cols < block * pool.num_threads()) block = block / 2 / kLanes * kLanes;
  const int64_t num_blocks = (args.x.cols + block - 1) / block;
  // Of a channel: its weights are turned round one by one, and a token costs its inputs, an exponential and a division.
  const int64_t channel_cost = 2 * args.kernel + num_tokens * kTokenCost;
  visit_dtype(args.x.dtype, [&]<class T>() {
    parallel_rows(pool, num_blocks, block * channel_cost, [&](int64_t first, int64_t last) {
      for (int64_t b = first; b < last; ++b) {
        const int64_t left = args.x.cols - b * block;
        const int64_t width = left < block ? left : block;
        if (args.activation == Activation::kNone) {
          convolve_block<T, 0, Activation::kNone>(args, b * block, width);
        } else if (args.kernel == kUsualKernel) {
          convolve_block<T, kUsualKernel, Activation::kSilu>(args, b * block, width);
        } else {
          convolve_block<T, 0, Activation::kSilu>(args, b * block, width);
        }
      }
    });
  });
}

}  // namespace ferry::FERRY_ISA_NAMESPACE

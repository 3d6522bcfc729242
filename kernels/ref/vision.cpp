#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/ref/ref_ops.h"

// The ops of the vision tower alone.

namespace ferry::ref {

float activate(BiasActivation activation, float y) {
  switch (activation) {
    case BiasActivation::kNone: return y;
    case BiasActivation::kGeluTanh: {
      constexpr float kRootOf2ByPi = 0.797884560802865f;
      return 0.5f * y * (1.0f + std::tanh(kRootOf2ByPi * (y + 0.044715f * y * y * y)));
    }
    case BiasActivation::kGelu: return 0.5f * y * (1.0f + std::erf(y * 0.707106781186548f));
  }
  return y;
}

namespace {

/// One row of one head against all rows [first, end) of its segment.
template <class T>
void attend(const SegmentAttentionArgs& args, int64_t row, int64_t head, int64_t first, int64_t end) {
  const int64_t head_dim = args.out.cols / args.num_heads;
  const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  const T* q = args.q.row<T>(row) + head * head_dim;
  std::vector<float> scores;
  float largest = -std::numeric_limits<float>::infinity(), total = 0.0f;
  for (int64_t key = first; key < end; ++key) {
    const T* k = args.k.row<T>(key) + head * head_dim;
    float dot = 0.0f;
    for (int64_t d = 0; d < head_dim; ++d) dot += to_float(q[d]) * to_float(k[d]);
    scores.push_back(dot * scale);
    largest = std::max(largest, scores.back());
  }
  for (float& score : scores) {
    score = std::exp(score - largest);
    total += score;
  }
  for (int64_t d = 0; d < head_dim; ++d) {
    float sum = 0.0f;
    for (int64_t key = first; key < end; ++key) {
      sum += scores[static_cast<std::size_t>(key - first)] * to_float(args.v.row<T>(key)[head * head_dim + d]);
    }
    args.out.row<T>(row)[head * head_dim + d] = from_float<T>(sum / total);
  }
}

}  // namespace

void layer_norm(ThreadPool&, const LayerNormArgs& args) {
  check_same_shape(args.x, args.out);
  visit_dtype(args.out.dtype, [&]<class T>() {
    const auto cols = static_cast<float>(args.x.cols);
    for (int64_t r = 0; r < args.x.rows; ++r) {
      const T* x = args.x.row<T>(r);
      float sum = 0.0f, squares = 0.0f;
      for (int64_t c = 0; c < args.x.cols; ++c) sum += to_float(x[c]);
      const float mean = sum / cols;
      for (int64_t c = 0; c < args.x.cols; ++c) squares += (to_float(x[c]) - mean) * (to_float(x[c]) - mean);
      const float scale = 1.0f / std::sqrt(squares / cols + args.eps);
      for (int64_t c = 0; c < args.x.cols; ++c) {
        args.out.row<T>(r)[c] = from_float<T>((to_float(x[c]) - mean) * scale * args.weight.raw()[c] + args.bias.raw()[c]);
      }
    }
  });
}

void add_bias(ThreadPool&, const AddBiasArgs& args) {
  check_bias_shape(args);
  visit_dtype(args.out.dtype, [&]<class T>() {
    for (int64_t r = 0; r < args.x.rows; ++r) {
      for (int64_t c = 0; c < args.x.cols; ++c) {
        const float y = round_to<T>(to_float(args.x.row<T>(r)[c]) + args.bias.raw()[c]);
        const bool has_residual = args.residual.data != nullptr;
        const float out = has_residual ? to_float(args.residual.row<T>(r)[c]) + y : activate(args.activation, y);
        args.out.row<T>(r)[c] = from_float<T>(out);
      }
    }
  });
}

void vision_rope(ThreadPool&, const VisionRopeArgs& args) {
  FERRY_CHECK_EQ(args.x.cols % args.head_dim, 0);
  FERRY_CHECK_EQ(args.head_dim % 2, 0);
  const int64_t half = args.head_dim / 2;
  visit_dtype(args.x.dtype, [&]<class T>() {
    for (int64_t r = 0; r < args.x.rows; ++r) {
      for (int64_t first = 0; first < args.x.cols; first += args.head_dim) {
        T* x = args.x.row<T>(r) + first;
        for (int64_t j = 0; j < half; ++j) {
          const float c = args.cos.raw()[r * half + j], s = args.sin.raw()[r * half + j];
          const float lower = to_float(x[j]), upper = to_float(x[half + j]);
          x[j] = from_float<T>(lower * c - upper * s);
          x[half + j] = from_float<T>(upper * c + lower * s);
        }
      }
    }
  });
}

void segment_attention(ThreadPool&, const SegmentAttentionArgs& args) {
  check_segments(args);
  visit_dtype(args.out.dtype, [&]<class T>() {
    int64_t first = 0;
    for (const int64_t end : args.segment_ends) {
      for (int64_t row = first; row < end; ++row) {
        for (int64_t head = 0; head < args.num_heads; ++head) attend<T>(args, row, head, first, end);
      }
      first = end;
    }
  });
}

}  // namespace ferry::ref

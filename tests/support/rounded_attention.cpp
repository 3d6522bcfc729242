#include "tests/support/rounded_attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace ferry::test {
namespace {

// How far scores may be off, in parts of the sum of their products' magnitudes, and a weight beside that, in parts of itself.
constexpr double kScoreError = 4e-7, kWeightError = 2e-5;

struct RoundedWeight {
  double value;
  double other;  // how far away the other bf16 is that it might have become; 0: far from the middle of both
};

/// `error` is how far the weight may be off, in parts of itself.
RoundedWeight round_weight(double weight, double error) {
  int exponent;
  const double places = std::frexp(weight, &exponent) * 256;  // 128 ‥ 256: whole ones are bf16
  const double place = std::ldexp(1.0, exponent - 8);
  const double from_middle = std::abs(places - std::floor(places) - 0.5);
  return {std::nearbyint(places) * place, from_middle <= error * places ? place : 0.0};
}

struct Head {
  const bfloat16* query;
  int64_t head_dim;
  const int32_t* blocks;
  const KvLayerView& cache;
  int64_t kv_head;

  const bfloat16* cached(const std::byte* base, int64_t position) const {
    const int64_t block = blocks[position / cache.block_tokens];
    const int64_t row = (block * cache.num_kv_heads + kv_head) * cache.block_tokens + position % cache.block_tokens;
    return reinterpret_cast<const bfloat16*>(base) + row * head_dim;
  }
};

/// The rounded weights of the keys [0, num_keys), below the largest score.
std::vector<RoundedWeight> weights_of(const Head& head, int64_t num_keys) {
  std::vector<double> scores, errors;  // of 2^score
  const double scale = std::log2(std::exp(1.0)) / std::sqrt(static_cast<double>(head.head_dim));
  for (int64_t position = 0; position < num_keys; ++position) {
    const bfloat16* key = head.cached(head.cache.keys.raw(), position);
    double dot = 0, magnitude = 0;
    for (int64_t d = 0; d < head.head_dim; ++d) {
      const double product = static_cast<double>(to_float(head.query[d])) * static_cast<double>(to_float(key[d]));
      dot += product;
      magnitude += std::abs(product);
    }
    scores.push_back(dot * scale);
    errors.push_back(magnitude * scale * kScoreError + kWeightError);
  }
  const double peak = std::ceil(*std::ranges::max_element(scores));
  std::vector<RoundedWeight> weights;
  for (std::size_t i = 0; i < scores.size(); ++i) weights.push_back(round_weight(std::exp2(scores[i] - peak), errors[i]));
  return weights;
}

void attend(const Head& head, int64_t num_keys, float* out, float* slack) {
  const std::vector<RoundedWeight> weights = weights_of(head, num_keys);
  std::vector<double> sums(static_cast<std::size_t>(head.head_dim)), others(sums);
  double total = 0;
  for (int64_t position = 0; position < num_keys; ++position) {
    const double weight = weights[static_cast<std::size_t>(position)].value;
    const bfloat16* value = head.cached(head.cache.values.raw(), position);
    for (std::size_t d = 0; d < sums.size(); ++d) sums[d] += weight * static_cast<double>(to_float(value[d]));
    total += weight;
  }
  for (double& sum : sums) sum /= total;
  for (int64_t position = 0; position < num_keys; ++position) {
    const double other = weights[static_cast<std::size_t>(position)].other;
    if (other == 0) continue;
    const bfloat16* value = head.cached(head.cache.values.raw(), position);
    for (std::size_t d = 0; d < sums.size(); ++d)
      others[d] += other / total * std::abs(static_cast<double>(to_float(value[d])) - sums[d]);
  }
  for (std::size_t d = 0; d < sums.size(); ++d) {
    out[d] = static_cast<float>(sums[d]);
    slack[d] = static_cast<float>(others[d]);
  }
}

}  // namespace

RoundedAttention rounded_attention(const AttentionArgs& args) {
  RoundedAttention expected{Matrix(DType::kF32, args.out.rows, args.out.cols),
                            Matrix(DType::kF32, args.out.rows, args.out.cols)};
  const int64_t head_dim = args.cache.head_dim, group = args.num_heads / args.cache.num_kv_heads;
  for (std::size_t s = 0; s < args.sequences.size(); ++s) {
    const SequenceSpan& span = args.sequences[s];
    for (int64_t t = 0; t < span.num_tokens; ++t) {
      const int64_t row = span.first_row + t;
      for (int64_t h = 0; h < args.num_heads; ++h) {
        const Head head{args.q.row<bfloat16>(row) + h * head_dim, head_dim, args.block_tables[s], args.cache, h / group};
        attend(head, span.num_past + t + 1, expected.out.view().row<float>(row) + h * head_dim,
               expected.slack.view().row<float>(row) + h * head_dim);
      }
    }
  }
  return expected;
}

std::string difference(const RoundedAttention& expected, ConstMatrixView actual, int64_t first_row, int64_t num_rows,
                       double relative) {
  const ConstMatrixView out = expected.out.view(), slack = expected.slack.view();
  double largest = 0;
  for (int64_t r = first_row; r < first_row + num_rows; ++r) {
    for (int64_t c = 0; c < out.cols; ++c) largest = std::max<double>(largest, std::abs(out.row<float>(r)[c]));
  }
  for (int64_t r = first_row; r < first_row + num_rows; ++r) {
    for (int64_t c = 0; c < out.cols; ++c) {
      const double want = out.row<float>(r)[c], is = static_cast<double>(to_float(actual.row<bfloat16>(r)[c]));
      const double allowed = relative * largest + slack.row<float>(r)[c] + std::abs(want) / 256;
      if (std::abs(is - want) <= allowed) continue;
      return "row " + std::to_string(r) + ", column " + std::to_string(c) + " is " + std::to_string(is) + ", not within " +
             std::to_string(allowed) + " of " + std::to_string(want);
    }
  }
  return {};
}

}  // namespace ferry::test

#include "kernels/cpu/int4_search.h"

#include <cstring>

// Compiled for several instruction sets, without contraction of products and sums: lanes are added in one order, so that every
// build finds the same codes.

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

constexpr int kLanes = 16;
constexpr int kMaxVectors = 16;  // a group of 256
typedef float Lanes __attribute__((vector_size(kLanes * 4)));
typedef int32_t Mask __attribute__((vector_size(kLanes * 4)));

constexpr float kMaxCode = 15.0f;
constexpr float kRoundingShift = 12582912.0f;  // 1.5 * 2^23: adding and taking it away rounds to the nearest integer
constexpr float kSmallestNormal = 1.17549435e-38f;

/// Ranges that are tried, as shares of the group's own.
constexpr float kShrinkStep = 0.04f;
constexpr int kNumShrinks = 10;

struct Choice {
  float scale = 0;
  float zero_point = 0;
};
struct Fit {
  float error;         // sum of squares
  float fitted_scale;  // the scale that suits the codes best
};

float add_lanes(const Lanes& v) {
  float sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += v[i];
  return sum;
}
Lanes clamp_code(const Lanes& x) {
  const Lanes zero{}, most = zero + kMaxCode;
  const Lanes low = x < zero ? zero : x;
  return low > most ? most : low;
}

/// The scale as a group word holds it: the nearest float with 4 bits of mantissa.
float round_scale(float scale) {
  uint32_t bits;
  std::memcpy(&bits, &scale, sizeof(bits));
  bits = (bits + (1u << 18)) & ~((1u << 19) - 1u);
  std::memcpy(&scale, &bits, sizeof(bits));
  return scale < kSmallestNormal ? 0.0f : scale;
}

class Group {
 public:
  Group(const float* weights, int64_t count) : num_vectors_(static_cast<int>(count / kLanes)) {
    std::memcpy(static_cast<void*>(w_), weights, static_cast<std::size_t>(count) * sizeof(float));
  }

  /// The range of the weights; it includes zero.
  void find_range(float& low, float& high) const {
    Lanes smallest{}, largest{};
    for (int v = 0; v < num_vectors_; ++v) {
      smallest = w_[v] < smallest ? w_[v] : smallest;
      largest = w_[v] > largest ? w_[v] : largest;
    }
    low = high = 0;
    for (int i = 0; i < kLanes; ++i) {
      low = smallest[i] < low ? smallest[i] : low;
      high = largest[i] > high ? largest[i] : high;
    }
  }

  Lanes codes(int v, const Choice& choice) const {
    return clamp_code(w_[v] * (1.0f / choice.scale) + kRoundingShift - kRoundingShift + choice.zero_point);
  }

  Fit evaluate(const Choice& choice) const {
    Lanes errors{}, products{}, squares{};
    for (int v = 0; v < num_vectors_; ++v) {
      const Lanes centred = codes(v, choice) - choice.zero_point;
      const Lanes error = w_[v] - centred * choice.scale;
      errors += error * error;
      products += w_[v] * centred;
      squares += centred * centred;
    }
    const float square = add_lanes(squares);
    return {add_lanes(errors), square > 0 ? add_lanes(products) / square : 0.0f};
  }

  int num_vectors() const { return num_vectors_; }

 private:
  int num_vectors_;
  Lanes w_[kMaxVectors];
};

/// Keeps the better of `best` and `choice`; returns the scale that fits choice's codes.
float consider(const Group& group, const Choice& choice, Choice& best, float& best_error) {
  if (choice.scale == 0.0f) return 0.0f;
  const Fit fit = group.evaluate(choice);
  if (fit.error < best_error) {
    best = choice;
    best_error = fit.error;
  }
  return round_scale(fit.fitted_scale);
}

Choice find_choice(const Group& group) {
  float low, high;
  group.find_range(low, high);
  Choice best;
  float best_error = __builtin_inff();
  for (int i = 0; i < kNumShrinks; ++i) {
    const float share = 1.0f - static_cast<float>(i) * kShrinkStep;
    Choice choice{round_scale((high - low) * share / kMaxCode), 0};
    if (choice.scale == 0.0f) break;
    choice.zero_point = -low * share / choice.scale + kRoundingShift - kRoundingShift;
    choice.zero_point = choice.zero_point > kMaxCode ? kMaxCode : choice.zero_point;
    choice.scale = consider(group, choice, best, best_error);
    consider(group, choice, best, best_error);
  }
  for (float step = -1.0f; step <= 1.0f; step += 2.0f) {
    Choice neighbour{best.scale, best.zero_point + step};
    if (neighbour.zero_point < 0.0f || neighbour.zero_point > kMaxCode) continue;
    neighbour.scale = consider(group, neighbour, best, best_error);
    consider(group, neighbour, best, best_error);
  }
  return best;
}

}  // namespace

void search_int4(const float* weights, int64_t count, uint8_t* codes, float& scale, uint8_t& zero_point) {
  const Group group(weights, count);
  const Choice choice = find_choice(group);
  scale = choice.scale;
  zero_point = static_cast<uint8_t>(choice.zero_point);
  if (choice.scale == 0.0f) {
    std::memset(codes, zero_point, static_cast<std::size_t>(count));
    return;
  }
  for (int v = 0; v < group.num_vectors(); ++v) {
    const Lanes found = group.codes(v, choice);
    for (int i = 0; i < kLanes; ++i) codes[v * kLanes + i] = static_cast<uint8_t>(found[i]);
  }
}

}  // namespace ferry::FERRY_ISA_NAMESPACE

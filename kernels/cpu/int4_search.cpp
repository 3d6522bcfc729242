#include "kernels/cpu/int4_search.h"

#include <cstring>

#include "runtime/base/check.h"

// Compiled for several instruction sets, without contraction of products and sums: lanes are added in one order, so that every
// build finds the same codes.

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

constexpr int kLanes = 16;
typedef float Lanes __attribute__((vector_size(kLanes * 4)));
typedef int32_t Bits __attribute__((vector_size(kLanes * 4)));
typedef uint8_t Bytes __attribute__((vector_size(kLanes)));

constexpr float kMaxCode = 15.0f;
constexpr float kSmallestNormal = 1.17549435e-38f;

// 1.5 * 2^23: the float next to it is 1 away, so that adding it rounds to the nearest integer, and the low bits of the sum are
// that integer. Sums order as their bits do.
constexpr float kRoundingShift = 12582912.0f;
constexpr int32_t kCodeZero = 0x4b400000, kCodeMost = kCodeZero + 15;

constexpr int32_t kScaleStep = 1 << 19;  // between neighbouring scales of 4 bits of mantissa, as bits
constexpr float kShareStep = 0.024f;     // between the shares of a group's range that are tried

/// What a group's codes may count by and from: one pair a lane.
struct Choices {
  Lanes scales;
  Lanes zero_points;
};
struct Choice {
  float scale;
  float zero_point;
};

/// Scales as a group word holds them: the nearest floats with 4 bits of mantissa.
Lanes round_scales(const Lanes& scales) { return (Lanes)(((Bits)scales + kScaleStep / 2) & ~(kScaleStep - 1)); }

/// The power of two at or below `magnitude`, within those that have a normal reciprocal.
float power_of_two_below(float magnitude) {
  constexpr uint32_t kLeast = 1u << 23, kMost = 253u << 23;
  uint32_t bits;
  std::memcpy(&bits, &magnitude, sizeof(bits));
  bits &= 0xff800000u;
  bits = bits < kLeast ? kLeast : bits > kMost ? kMost : bits;
  float power;
  std::memcpy(&power, &bits, sizeof(power));
  return power;
}

/// A group of weights, as multiples of a unit near the largest: no sum of theirs over- or underflows.
template <int kCount>
class Group {
 public:
  explicit Group(const float* weights) {
    std::memcpy(w_, weights, sizeof(w_));
    find_range();
    unit_ = power_of_two_below(high_ > -low_ ? high_ : -low_);
    const float inverse = 1.0f / unit_;  // exact
    for (float& w : w_) w *= inverse;
    low_ *= inverse;
    high_ *= inverse;
  }

  float unit() const { return unit_; }

  /// Ranges shrunk step by step; the whole one in lane 0.
  Choices shrunk_ranges() const {
    const Lanes shares = 1.0f - kShareStep * Lanes{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const Lanes scales = round_scales((high_ - low_) * shares * (1.0f / kMaxCode));
    const Lanes zero_points = -low_ * shares / scales + kRoundingShift - kRoundingShift;
    return {scales, zero_points > kMaxCode ? Lanes{} + kMaxCode : zero_points};
  }

  /// For every choice the nearest codes c, counted from the zero point, then the scale s that suits these codes best: the
  /// square error is sum w^2 - s (2 sum wc - s sum c^2), least at s = sum wc / sum c^2. Returns the pair with the least error.
  Choice best_of(const Choices& choices) const {
    const Lanes inverses = 1.0f / choices.scales, offsets = kRoundingShift + choices.zero_points;
    Lanes products{}, squares{};
    for (int i = 0; i < kCount; ++i) {
      const Lanes centred = (Lanes)nearest_codes(w_[i], inverses, offsets) - offsets;
      products += w_[i] * centred;
      squares += centred * centred;
    }
    const Lanes scales = round_scales(products / squares), gains = scales * (2.0f * products - scales * squares);
    int best = 0;
    for (int i = 1; i < kLanes; ++i) best = gains[i] > gains[best] ? i : best;
    return {scales[best], choices.zero_points[best]};
  }

  void write_codes(const Choice& choice, uint8_t* codes) const {
    const Lanes inverses = Lanes{} + 1.0f / choice.scale, offsets = Lanes{} + (kRoundingShift + choice.zero_point);
    for (int i = 0; i < kCount; i += kLanes) {
      Lanes w;
      std::memcpy(&w, w_ + i, sizeof(w));
      const Bits found = nearest_codes(w, inverses, offsets);
      const auto bytes = __builtin_convertvector(found & 15, Bytes);
      std::memcpy(codes + i, &bytes, sizeof(bytes));
    }
  }

 private:
  void find_range() {
    Lanes smallest{}, largest{};
    for (int i = 0; i < kCount; i += kLanes) {
      Lanes w;
      std::memcpy(&w, w_ + i, sizeof(w));
      smallest = w < smallest ? w : smallest;
      largest = w > largest ? w : largest;
    }
    for (int i = 0; i < kLanes; ++i) {
      low_ = smallest[i] < low_ ? smallest[i] : low_;
      high_ = largest[i] > high_ ? largest[i] : high_;
    }
  }

  /// As bits above kCodeZero.
  template <class Weights>
  static Bits nearest_codes(const Weights& w, const Lanes& inverses, const Lanes& offsets) {
    const Bits bits = (Bits)(w * inverses + offsets);
    const Bits least = Bits{} + kCodeZero, most = Bits{} + kCodeMost;
    const Bits not_below = bits > least ? bits : least;
    return not_below < most ? not_below : most;
  }

  float w_[kCount];
  float low_ = 0, high_ = 0;  // the range of the weights and zero, in units
  float unit_;
};

template <int kCount>
void search_group(const float* weights, uint8_t* codes, float& scale, uint8_t& zero_point) {
  const Group<kCount> group(weights);
  const Choice choice = group.best_of(group.shrunk_ranges());
  scale = choice.scale * group.unit();
  if (scale >= kSmallestNormal) {
    zero_point = static_cast<uint8_t>(choice.zero_point);
    group.write_codes(choice, codes);
  } else {
    scale = 0;
    zero_point = 0;
    std::memset(codes, 0, kCount);
  }
}

}  // namespace

void search_int4(const float* weights, int64_t count, uint8_t* codes, float& scale, uint8_t& zero_point) {
  switch (count) {
    case 32: return search_group<32>(weights, codes, scale, zero_point);
    case 64: return search_group<64>(weights, codes, scale, zero_point);
    case 128: return search_group<128>(weights, codes, scale, zero_point);
    case 256: return search_group<256>(weights, codes, scale, zero_point);
    default: FERRY_CHECK(false) << " group of " << count;
  }
}

}  // namespace ferry::FERRY_ISA_NAMESPACE

#pragma once

#include <math.h>

#include "kernels/cpu/simd.h"
#include "kernels/ops.h"

namespace ferry::FERRY_ISA_NAMESPACE {

/// y/2 (1 + tanh(u)) = y sigmoid(2 u)
[[gnu::always_inline]] inline F32x16 gelu_tanh(F32x16 y) {
  constexpr float kTwiceRootOf2ByPi = 1.59576912160573f;
  const F32x16 inner = fma(y * y * y, 0.044715f, y);
  return y * sigmoid(inner * kTwiceRootOf2ByPi);
}

/// erf within 1.5e-7 would not do for values whose result nearly cancels, and few columns take this: the library's, lane by
/// lane.
inline F32x16 gelu(F32x16 y) {
  float lanes[kLanes];
  store(lanes, y);
  for (float& lane : lanes) lane = 0.5f * lane * (1.0f + erff(lane * 0.707106781186548f));
  return load(lanes);
}

[[gnu::always_inline]] inline F32x16 activate(BiasActivation activation, F32x16 y) {
  switch (activation) {
    case BiasActivation::kNone: return y;
    case BiasActivation::kGeluTanh: return gelu_tanh(y);
    case BiasActivation::kGelu: return gelu(y);
  }
  return y;
}

}  // namespace ferry::FERRY_ISA_NAMESPACE

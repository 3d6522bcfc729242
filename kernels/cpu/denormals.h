#pragma once

#include <immintrin.h>

namespace ferry::FERRY_ISA_NAMESPACE {

/// While it lives, this thread's vector arithmetic takes denormals as zeros and makes none. Products with decays that have died
/// out are full of them, and each costs the processor a detour of some hundred cycles (seen: 5 times slower prefill of
/// DeltaNet).
class DenormalsAsZeros {
 public:
  DenormalsAsZeros() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | kFlushToZero | kDenormalsAreZeros); }
  ~DenormalsAsZeros() { _mm_setcsr(saved_); }
  DenormalsAsZeros(const DenormalsAsZeros&) = delete;
  DenormalsAsZeros& operator=(const DenormalsAsZeros&) = delete;

 private:
  static constexpr unsigned kDenormalsAreZeros = 1u << 6, kFlushToZero = 1u << 15;
  unsigned saved_;
};

}  // namespace ferry::FERRY_ISA_NAMESPACE

#pragma once

#include "runtime/base/sanitizers.h"

namespace ferry::test {

/// How many cases a test draws: `all`, or `few` if it is compiled with a sanitizer, with which each takes ten times as long.
/// The gate compiles most tests with one. `launch/test.sh --all` runs them without.
template <class T>
constexpr T draws([[maybe_unused]] T all, [[maybe_unused]] T few) {
#if defined(FERRY_ADDRESS_SANITIZER) || defined(FERRY_THREAD_SANITIZER)
  return few;
#else
  return all;
#endif
}

}  // namespace ferry::test

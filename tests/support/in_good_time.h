#pragma once

#include <chrono>

#include "tests/support/eventually.h"

namespace ferry::test {

/// The deadline of a wait that is to end by what it waits for.
inline std::chrono::steady_clock::time_point in_good_time() { return std::chrono::steady_clock::now() + kTestLimit; }

/// The deadline of a look: it takes what is there, and waits for nothing.
inline std::chrono::steady_clock::time_point at_once() { return std::chrono::steady_clock::now(); }

}  // namespace ferry::test

#pragma once

#include <cstdint>

namespace ferry::test {

/// How often operator new was called by any thread since the process began. Programs that link allocation_count.cpp count; it
/// replaces the operator of the whole program.
int64_t num_allocations();

}  // namespace ferry::test

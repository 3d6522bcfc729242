#pragma once

#include "kernels/matmul.h"

namespace ferry {

/// What the machine can do at best, taken with the threads that the measured work uses.
struct Roof {
  double read_bytes_per_s = 0;  // from memory, one forward stream a thread
  double flops_per_s = 0;       // matrix products of the run's dtype whose operands stay in the caches
};

/// Takes about a second.
Roof measure_roof(ThreadPool& pool, MatmulBackend& matmul, DType dtype);

}  // namespace ferry

#include "kernels/cpu/scratch.h"

#include "runtime/base/aligned_buffer.h"

namespace ferry {

float* thread_scratch(int64_t num_floats) {
  thread_local AlignedBuffer buffer;
  const std::size_t size = static_cast<std::size_t>(num_floats) * sizeof(float);
  if (buffer.size() < size) buffer = AlignedBuffer(size);
  return buffer.as<float>();
}

}  // namespace ferry

#include "kernels/cpu/scratch.h"

#include <array>

#include "runtime/base/aligned_buffer.h"

namespace ferry {

float* thread_scratch(int64_t num_floats, Scratch which) {
  thread_local std::array<AlignedBuffer, 3> buffers;
  AlignedBuffer& buffer = buffers[static_cast<std::size_t>(which)];
  const std::size_t size = static_cast<std::size_t>(num_floats) * sizeof(float);
  if (buffer.size() < size) buffer = AlignedBuffer(size);
  return buffer.as<float>();
}

}  // namespace ferry

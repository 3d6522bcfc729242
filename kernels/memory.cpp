#include "kernels/memory.h"

#include <cstring>

#include "runtime/base/aligned_buffer.h"

namespace ferry {
namespace {

class HostMemory final : public Memory {
 public:
  Space space() const override { return Space::kHost; }
  Storage allocate(std::size_t size) override {
    auto buffer = std::make_unique<AlignedBuffer>(size);
    std::byte* data = buffer->data();
    return {data, size, Space::kHost, {buffer.release(), [](void* owned) { delete static_cast<AlignedBuffer*>(owned); }}};
  }
  void fill(Address<std::byte> to, std::span<const std::byte> from) override {
    if (!from.empty()) std::memcpy(to.host(), from.data(), from.size());
  }
};

}  // namespace

Memory& host_memory() {
  static HostMemory memory;
  return memory;
}

}  // namespace ferry

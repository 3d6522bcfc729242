#include "kernels/memory.h"

#include <cstring>
#include <utility>

#include "runtime/base/aligned_buffer.h"

namespace ferry {
namespace {

class HostMemory final : public Memory {
 public:
  Space space() const override { return Space::kHost; }
  Storage allocate(std::size_t size) override {
    auto buffer = std::make_shared<AlignedBuffer>(size);
    std::byte* data = buffer->data();
    return {data, size, Space::kHost, std::move(buffer)};
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

#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/free_extents.h"
#include "kernels/memory.h"
#include "kernels/vulkan/device.h"
#include "runtime/base/memory_use.h"

namespace ferry::vulkan {

/// A place in one of a device's buffers, as copies need it.
struct BufferPlace {
  VkBuffer buffer = VK_NULL_HANDLE;
  uint64_t offset = 0;  // bytes
};

/// The memory of a device. Small pieces share blocks: what one leaves behind is used again (free_extents.h), and a block
/// without pieces goes, but for the last one. Any thread.
class DeviceMemory final : public Memory {
 public:
  /// The device outlives it, and it outlives what it hands out.
  explicit DeviceMemory(Device& device);
  ~DeviceMemory() override;

  Space space() const override { return Space::kDevice; }
  /// At a multiple of 256 bytes.
  Storage allocate(std::size_t size) override;
  void fill(Address<std::byte> to, std::span<const std::byte> from) override;
  /// Likewise what `write` writes to the room that it is given: all of it, which may be slow to read.
  void fill(Address<std::byte> to, std::size_t size, const std::function<void(std::byte*)>& write);

  /// Dies for an address that lies in no block.
  BufferPlace place_of(uint64_t address);
  Device& device() const { return device_; }

 private:
  class Block;
  class CountedBytes;
  class Lane;
  class SharedBlock;
  struct Cut;
  struct Piece;
  struct GiveBack {
    DeviceMemory* memory = nullptr;
    void operator()(Lane* lane) const;
  };
  using TakenLane = std::unique_ptr<Lane, GiveBack>;

  std::shared_ptr<Block> make_block(std::size_t size, MemoryUse use);
  Cut cut(std::size_t size);
  void give_back(Cut& cut) noexcept;
  TakenLane take_lane();

  Device& device_;
  std::mutex mutex_;
  std::map<uint64_t, Block*> blocks_;  // by address

  std::mutex shared_mutex_;
  std::vector<std::unique_ptr<SharedBlock>> shared_;  // that small pieces are cut from, the oldest first

  std::mutex lanes_mutex_;
  std::condition_variable lane_is_free_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace ferry::vulkan

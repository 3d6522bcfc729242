#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/memory.h"
#include "kernels/vulkan/device.h"

namespace ferry::vulkan {

/// A place in one of a device's buffers, as copies need it.
struct BufferPlace {
  VkBuffer buffer = VK_NULL_HANDLE;
  uint64_t offset = 0;  // bytes
};

/// The memory of a device. Small pieces share blocks, which go when the last of their pieces has gone. Any thread.
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
  class Lane;
  struct GiveBack {
    DeviceMemory* memory = nullptr;
    void operator()(Lane* lane) const;
  };
  using TakenLane = std::unique_ptr<Lane, GiveBack>;

  std::shared_ptr<Block> make_block(std::size_t size);
  TakenLane take_lane();

  Device& device_;
  std::mutex mutex_;
  std::map<uint64_t, Block*> blocks_;  // by address

  std::mutex shared_mutex_;
  std::shared_ptr<Block> shared_;  // that small pieces are cut from
  std::size_t shared_used_ = 0;    // bytes of it

  std::mutex lanes_mutex_;
  std::condition_variable lane_is_free_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace ferry::vulkan

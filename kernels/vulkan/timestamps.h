#pragma once

#include <cstdint>
#include <vector>

#include "kernels/vulkan/device.h"

namespace ferry::vulkan {

/// The moments of one submission that the device's own clock tells.
class Timestamps {
 public:
  static constexpr uint32_t kRoom = 256;  // moments

  /// The device outlives it, and has a clock (DeviceTraits::timestamp_ns).
  explicit Timestamps(Device& device);
  ~Timestamps();
  Timestamps(const Timestamps&) = delete;
  Timestamps& operator=(const Timestamps&) = delete;

  /// First of all in a command buffer.
  void begin(VkCommandBuffer commands);
  /// The moment at which all that was recorded or submitted before has run.
  void put(VkCommandBuffer commands);
  uint32_t size() const { return size_; }

  /// When the submission has run: the moments in their order, in ticks of the device, of which timestamp_bits count; nothing if
  /// the driver does not have them. Throws Error{kUnavailable} for a lost device.
  std::vector<uint64_t> read() const;

 private:
  Device& device_;
  VkQueryPool pool_ = VK_NULL_HANDLE;
  uint32_t size_ = 0;
};

}  // namespace ferry::vulkan

#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "kernels/vulkan/api.h"

namespace ferry::vulkan {

class Device;

/// Where command buffers are handed to the device. Each submission has a number, ascending from 1, in whose order they begin.
/// Any thread.
class Queue {
 public:
  /// The device outlives it.
  explicit Queue(Device& device);
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  /// Throws Error.
  uint64_t submit(VkCommandBuffer commands);
  /// Returns when submission `number` and those before it have run. Throws Error{kUnavailable} when the device is lost, or
  /// finishes none of them for a minute.
  void wait(uint64_t number);
  /// The last submission that has run. Throws as wait() does.
  uint64_t num_done();
  /// How often a thread that waits has looked whether its submission has run, since it sleeps for half a second at most.
  uint64_t num_looks() const { return num_looks_.load(std::memory_order_relaxed); }

 private:
  void block(uint64_t number);

  Device& device_;
  VkQueue queue_ = VK_NULL_HANDLE;
  VkSemaphore timeline_ = VK_NULL_HANDLE;
  std::mutex mutex_;
  uint64_t num_submitted_ = 0;
  std::atomic<uint64_t> num_looks_{0};
};

}  // namespace ferry::vulkan

#pragma once

#include <cstdint>

#include "kernels/vulkan/device.h"

namespace ferry::vulkan {

/// A command buffer that is recorded, submitted once, and recorded again when that has run.
class Commands {
 public:
  /// The device outlives it.
  explicit Commands(Device& device);
  ~Commands();
  Commands(const Commands&) = delete;
  Commands& operator=(const Commands&) = delete;

  VkCommandBuffer handle() const { return commands_; }
  void begin();
  void end();
  /// Dispatches behind it see what dispatches before it wrote; or copies do as well, which takes longer.
  enum class Scope : uint8_t { kDispatches, kAll };
  void barrier(Scope scope = Scope::kAll);
  /// The host sees what was copied, once it knows that the submission has run.
  void barrier_to_host();

 private:
  Device& device_;
  VkCommandPool pool_ = VK_NULL_HANDLE;
  VkCommandBuffer commands_ = VK_NULL_HANDLE;
};

}  // namespace ferry::vulkan

#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>

#include "kernels/vulkan/physical_device.h"

namespace ferry::vulkan {

class Device;
class Pipelines;
class Queue;

/// What a buffer is for, which decides in which memory it lies.
enum class BufferUse : uint8_t {
  kDevice,    // what the device works on
  kTables,    // small things that the host writes and the device reads where they are: the device's memory if the host sees it
  kUpload,    // what the host writes and the device copies
  kDownload,  // what the device writes and the host reads
};

/// Owns a buffer and its memory. Move-only.
class Buffer {
 public:
  Buffer() = default;
  /// Throws Error{kResourceExhausted} that says how much was asked for and what there is.
  Buffer(Device& device, std::size_t size, BufferUse use);
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  VkBuffer handle() const { return buffer_; }
  /// Where the device finds it.
  uint64_t address() const { return address_; }
  /// Where the host finds it; null where it is kDevice.
  std::byte* host() const { return host_; }
  std::size_t size() const { return size_; }

 private:
  Device* device_ = nullptr;
  VkBuffer buffer_ = VK_NULL_HANDLE;
  VkDeviceMemory memory_ = VK_NULL_HANDLE;
  uint64_t address_ = 0;
  std::byte* host_ = nullptr;
  std::size_t size_ = 0;
};

/// An open device with its queue and its pipelines. Any thread may use it; what is made of it must be gone before it is.
class Device {
 public:
  /// `physical` is not refused; its traits may have been lowered. Compiled pipelines are kept in `cache_folder` from run to
  /// run, if one is named. Throws Error.
  explicit Device(const PhysicalDevice& physical, const std::filesystem::path& cache_folder = {});
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  VkDevice handle() const { return device_; }
  /// Not const, so that tests can let functions fail.
  DeviceFunctions& vk() { return functions_; }
  const PhysicalDevice& physical() const { return physical_; }
  const DeviceTraits& traits() const { return physical_.traits; }
  Queue& queue() { return *queue_; }
  Pipelines& pipelines() { return *pipelines_; }

 private:
  friend class Buffer;
  VkDeviceMemory allocate(const VkMemoryRequirements& needs, BufferUse use);

  PhysicalDevice physical_;
  VkDevice device_ = VK_NULL_HANDLE;
  DeviceFunctions functions_;
  VkPhysicalDeviceMemoryProperties memory_{};
  std::unique_ptr<Queue> queue_;
  std::unique_ptr<Pipelines> pipelines_;
};

}  // namespace ferry::vulkan

#pragma once

#include <filesystem>
#include <string>

#include "kernels/backend.h"
#include "kernels/vulkan/device_memory.h"

namespace ferry::vulkan {

/// An open device, its memory, and the backend that works there. What is made of them must be gone before it is.
class VulkanBackend final : public OpenDevice {
 public:
  /// `physical` is not refused; its traits may have been lowered, to choose other kernels. `cache_folder` as of Device.
  VulkanBackend(const PhysicalDevice& physical, DType dtype, const std::filesystem::path& cache_folder = {});

  const Backend& backend() const override { return backend_; }
  std::unique_ptr<Stream> make_stream(ThreadPool& pool) override;
  void rehearse(Stream& stream, const std::function<void()>& work) override;
  int64_t scratch_bytes(const OpLimits& limits) const override;
  void reserve_scratch(Stream& stream, const OpLimits& limits) override;
  const DeviceInfo& info() const override { return device_.physical().info; }
  uint64_t free_bytes() const override { return free_device_bytes(device_.physical()); }
  uint64_t progress() noexcept override;
  double read_bytes_per_s(std::size_t num_bytes) override;
  double flops_per_s(DType factors) override;
  std::string multiply_unit(DType factors) const override;

  Device& device() { return device_; }

 private:
  Device device_;
  DeviceMemory memory_;
  Backend backend_;
};

}  // namespace ferry::vulkan

#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "kernels/vulkan/devices.h"
#include "runtime/options/device_choice.h"

// From --device to what computes.

namespace ferry {

/// A device of those that `list_devices()` gives, or the CPU.
struct DeviceSelection {
  std::optional<int> index;  // absent: the CPU
  std::string why_cpu;       // why --device auto found no GPU; else empty
};

/// What rank number `local_rank` of its host is to compute on.
///
///   auto      the first GPU that can be used
///   vulkan    its own of the GPUs that can be used, dealt out in turn; of what the CPU emulates where there is no GPU
///   vulkan:N  device N, whatever open_device() says of it
///
/// Throws Error{kFailedPrecondition} that says why where no device can be used for "vulkan".
DeviceSelection select_device(const DeviceChoice& choice, const vulkan::DeviceList& list, int local_rank);

/// "vulkan:1".
std::string device_name(int index);

/// An open device and its number.
struct ComputeDevice {
  int index = 0;
  std::unique_ptr<vulkan::OpenDevice> open;

  /// "vulkan:0 (NVIDIA H100 80GB HBM3)".
  std::string describe() const;
  /// One line if it computes without something that it has; empty if not.
  std::string warning() const;
  /// Throws Error{kResourceExhausted} with `what`, the bytes wanted and those there if `bytes` of its memory are not free now.
  void require_memory(int64_t bytes, const std::string& what) const;
};

/// Opens what select_device() chooses for a run in `dtype`; nothing: the CPU, and `why_cpu` says why if "auto" wanted it
/// otherwise. `cache_folder` as of open_device(). Throws what select_device() and open_device() do, the option in front.
std::optional<ComputeDevice> open_compute_device(const DeviceChoice& choice, int local_rank, DType dtype,
                                                 const std::filesystem::path& cache_folder, std::string& why_cpu);

}  // namespace ferry

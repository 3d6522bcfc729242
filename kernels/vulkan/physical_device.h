#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/vulkan/api.h"
#include "kernels/vulkan/devices.h"
#include "kernels/vulkan/pipeline_file.h"

namespace ferry::vulkan {

/// Shape of a cooperative matrix product of one subgroup: [m, k] x [k, n]. Zeros: there is none.
struct Fragment {
  uint32_t m = 0, n = 0, k = 0;

  explicit operator bool() const { return m > 0; }
  friend bool operator==(const Fragment&, const Fragment&) = default;
};

/// What of a device decides how Ferry computes on it. Kernels are chosen by traits, never by name or vendor, so that each can
/// be tried where it is switched off.
struct DeviceTraits {
  uint32_t subgroup_size = 0;
  uint32_t shared_bytes = 0;         // of a workgroup
  uint32_t max_invocations = 0;      // likewise
  Fragment bf16, f16;                // with sums in fp32
  Fragment int8;                     // signed, with sums in int32
  bool has_packed_dot = false;       // four products of signed bytes at once, in hardware
  double timestamp_ns = 0;           // of a tick; 0: its queue has no clock
  uint32_t timestamp_bits = 0;       // of a timestamp that count, those above are undefined; 0: likewise
  bool has_calibrated_time = false;  // its clock can be read together with the host's
  bool has_memory_budget = false;    // it says what may still be allocated
  uint64_t max_buffer_bytes = 0;     // of one buffer, and of the piece of memory behind it
};

/// A device as found, and how to open it.
struct PhysicalDevice {
  VkPhysicalDevice handle = VK_NULL_HANDLE;
  DeviceInfo info;
  DeviceTraits traits;
  PipelineOwner pipeline_owner;
  uint32_t queue_family = 0;
  bool must_set_subgroup_size = false;  // since it has several
  std::vector<const char*> extensions;  // to enable, of those that it has
};

/// The process's instance, made when it is first asked for. Any thread.
struct Instance {
  VkInstance handle = VK_NULL_HANDLE;
  InstanceFunctions functions;
  std::string lack;  // why there is none; empty if there is
};
const Instance& instance();

/// The host's clock that can be read together with the device's: CLOCK_MONOTONIC, or else CLOCK_MONOTONIC_RAW.
std::optional<VkTimeDomainEXT> find_host_clock(VkPhysicalDevice device);

/// In the loader's order; those that are refused say why in their info. Without any, `lack` becomes why, otherwise empty.
std::vector<PhysicalDevice> find_physical_devices(std::string* lack = nullptr);

/// "bf16 matrices 16x16x16".
std::string fragment_text(const char* elements, Fragment fragment);
/// As in DeviceInfo.
std::vector<std::string> name_abilities(const DeviceTraits& traits);

/// What may still be allocated of the largest heap that is local to the device: by its budget, or the heap's size
/// where it has no budget.
uint64_t free_device_bytes(const PhysicalDevice& device);

}  // namespace ferry::vulkan

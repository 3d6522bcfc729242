#include "kernels/vulkan/backend.h"

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "kernels/vulkan/matmul.h"
#include "kernels/vulkan/multiply_probe.h"
#include "kernels/vulkan/op_table.h"
#include "kernels/vulkan/ops/vulkan_ops.h"
#include "kernels/vulkan/queue.h"
#include "kernels/vulkan/read_probe.h"
#include "kernels/vulkan/row_proof.h"
#include "kernels/vulkan/vulkan_stream.h"
#include "runtime/base/error.h"

namespace ferry::vulkan {

VulkanBackend::VulkanBackend(const PhysicalDevice& physical, DType dtype, const std::filesystem::path& cache_folder)
    : device_(physical, cache_folder),
      memory_(device_),
      backend_("vulkan", {&kOpTable}, make_vulkan_matmul(memory_, device_.traits(), dtype), memory_) {}

std::unique_ptr<Stream> VulkanBackend::make_stream(ThreadPool& pool) { return std::make_unique<VulkanStream>(backend_, pool); }

uint64_t VulkanBackend::progress() noexcept {
  try {
    return device_.queue().num_done() + device_.queue().num_looks();
  } catch (const Error&) {  // who waits for it is told
    return 0;
  }
}

double VulkanBackend::read_bytes_per_s(std::size_t num_bytes) {
  constexpr std::size_t kMost = std::size_t{1} << 30;
  return ReadProbe(device_, std::min({num_bytes, kMost, static_cast<std::size_t>(free_bytes() / 8)})).bytes_per_s();
}

double VulkanBackend::flops_per_s(DType factors) { return MultiplyProbe(device_).flops_per_s(factors); }

std::string VulkanBackend::multiply_unit(DType factors) const { return vulkan::multiply_unit(device_.traits(), factors); }

void VulkanBackend::rehearse(Stream& stream, const std::function<void()>& work) {
  static_cast<VulkanStream&>(stream).rehearse(work);
}

int64_t VulkanBackend::scratch_bytes(const OpLimits& limits) const { return op_scratch_bytes(device_.traits(), limits); }

void VulkanBackend::reserve_scratch(Stream& stream, const OpLimits& limits) {
  static_cast<VulkanStream&>(stream).reserve_scratch(static_cast<std::size_t>(scratch_bytes(limits)));
}

namespace {

/// Whether `device`, which is open, has matrices that it does without from now on, since they fail in `open`.
bool drop_untrusted(VulkanBackend& open, DType dtype, PhysicalDevice& device) {
  constexpr unsigned kMostThreads = 8;  // compile the kernels, of which there are few
  const std::vector<WeightType> types = types_of_matrices(device.traits, dtype);
  if (types.empty()) return false;
  ThreadPool pool(static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, kMostThreads)));
  VulkanStream stream(open.backend(), pool);
  const auto stand_alone = [&](WeightType type) {
    return rows_stand_alone(stream, make_row_proof(device.traits, type, dtype));
  };
  stream.rehearse([&] { std::ranges::for_each(types, stand_alone); });
  drop_untrusted(device, types, stand_alone);
  return !device.info.faults.empty();
}

}  // namespace

std::unique_ptr<OpenDevice> open_device(int index, DType dtype, const std::filesystem::path& cache_folder) {
  const std::string name = "--device vulkan:" + std::to_string(index);
  std::string lack;
  const std::vector<PhysicalDevice> devices = find_physical_devices(&lack);
  if (devices.empty()) throw Error(ErrorCode::kFailedPrecondition, name + ": " + lack);
  if (index < 0 || index >= static_cast<int>(devices.size())) {
    std::string allowed;
    for (std::size_t i = 0; i < devices.size(); ++i)
      allowed += (i > 0 ? ", " : "") + std::to_string(i) + " (" + devices[i].info.name + ")";
    throw_invalid(name + ": there is no such device; allowed: " + allowed);
  }
  PhysicalDevice device = devices[static_cast<std::size_t>(index)];
  if (!device.info.refusal.empty())
    throw Error(ErrorCode::kFailedPrecondition, name + ": " + device.info.name + " cannot be used: " + device.info.refusal);
  auto open = std::make_unique<VulkanBackend>(device, dtype, cache_folder);
  if (!drop_untrusted(*open, dtype, device)) return open;
  open.reset();
  return std::make_unique<VulkanBackend>(device, dtype, cache_folder);
}

}  // namespace ferry::vulkan

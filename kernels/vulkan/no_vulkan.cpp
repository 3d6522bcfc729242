#include "kernels/vulkan/devices.h"
#include "runtime/base/error.h"

// A build without Vulkan.

namespace ferry::vulkan {
namespace {

constexpr const char* kLack = "this ferry was built without Vulkan";

}  // namespace

DeviceList list_devices() { return {.devices = {}, .lack = kLack}; }

std::unique_ptr<OpenDevice> open_device(int index, DType, const std::filesystem::path&) {
  throw Error(ErrorCode::kFailedPrecondition, "--device vulkan:" + std::to_string(index) + ": " + kLack);
}

}  // namespace ferry::vulkan

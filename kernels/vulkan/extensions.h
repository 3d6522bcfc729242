#pragma once

#include "kernels/vulkan/api.h"

// What Debian 12's headers do not have yet, from the registry of Vulkan 1.4.

namespace ferry::vulkan {

constexpr const char* kCooperativeMatrixExtension = "VK_KHR_cooperative_matrix";
constexpr const char* kBfloat16Extension = "VK_KHR_shader_bfloat16";
constexpr const char* kCalibratedTimestampsExtension = "VK_KHR_calibrated_timestamps";  // as the EXT one, by another name

constexpr VkStructureType kCooperativeMatrixFeaturesType = static_cast<VkStructureType>(1000506000);
constexpr VkStructureType kCooperativeMatrixPropertiesType = static_cast<VkStructureType>(1000506001);
constexpr VkStructureType kBfloat16FeaturesType = static_cast<VkStructureType>(1000141000);

struct CooperativeMatrixFeatures {
  VkStructureType sType = kCooperativeMatrixFeaturesType;
  void* pNext = nullptr;
  VkBool32 cooperativeMatrix = VK_FALSE;
  VkBool32 cooperativeMatrixRobustBufferAccess = VK_FALSE;
};

struct Bfloat16Features {
  VkStructureType sType = kBfloat16FeaturesType;
  void* pNext = nullptr;
  VkBool32 shaderBFloat16Type = VK_FALSE;
  VkBool32 shaderBFloat16DotProduct = VK_FALSE;
  VkBool32 shaderBFloat16CooperativeMatrix = VK_FALSE;
};

/// Elements of a cooperative matrix: VkComponentTypeKHR.
enum class ComponentType : uint32_t { kFloat16 = 0, kFloat32 = 1, kSint8 = 3, kSint32 = 5, kBfloat16 = 1000141000 };
constexpr uint32_t kSubgroupScope = 3;  // VK_SCOPE_SUBGROUP_KHR

struct CooperativeMatrixProperties {
  VkStructureType sType = kCooperativeMatrixPropertiesType;
  void* pNext = nullptr;
  uint32_t m = 0, n = 0, k = 0;
  ComponentType a{}, b{}, c{}, result{};
  VkBool32 saturates = VK_FALSE;
  uint32_t scope = 0;
};

}  // namespace ferry::vulkan

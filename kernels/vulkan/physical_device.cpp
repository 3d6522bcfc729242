#include "kernels/vulkan/physical_device.h"

#include <algorithm>
#include <cstring>

#include "kernels/vulkan/extensions.h"
#include "runtime/base/error.h"

namespace ferry::vulkan {
namespace {

constexpr uint32_t kVersion = VK_API_VERSION_1_3;

std::string version_text(uint32_t version) {
  return std::to_string(VK_API_VERSION_MAJOR(version)) + "." + std::to_string(VK_API_VERSION_MINOR(version)) + "." +
         std::to_string(VK_API_VERSION_PATCH(version));
}

bool has_extension(const std::vector<VkExtensionProperties>& extensions, const char* name) {
  return std::any_of(extensions.begin(), extensions.end(),
                     [&](const VkExtensionProperties& e) { return std::strcmp(e.extensionName, name) == 0; });
}

/// Drivers that only translate to another interface (Apple's) are listed on request alone.
bool can_list_portability() {
  uint32_t count = 0;
  if (loader().EnumerateInstanceExtensionProperties(nullptr, &count, nullptr) != VK_SUCCESS) return false;
  std::vector<VkExtensionProperties> extensions(count);
  if (loader().EnumerateInstanceExtensionProperties(nullptr, &count, extensions.data()) != VK_SUCCESS) return false;
  return has_extension(extensions, VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME);
}

/// The loader has one result for many reasons ("out of host memory" for a manifest that is no JSON), but tells of each.
std::string reason_text(VkResult result) {
  return std::string(result_name(result)) + " (the environment's VK_LOADER_DEBUG=error has the loader say why)";
}

Instance make_instance() {
  Instance made;
  made.lack = loader().lack;
  if (!made.lack.empty()) return made;
  uint32_t version = 0;
  if (loader().EnumerateInstanceVersion(&version) != VK_SUCCESS || version < kVersion) {
    made.lack = "the Vulkan loader speaks version " + version_text(version) + "; needed: " + version_text(kVersion);
    return made;
  }
  const VkApplicationInfo application{
      .sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .pApplicationName = "ferry", .apiVersion = kVersion};
  VkInstanceCreateInfo create{.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &application};
  const char* portability = VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME;
  if (can_list_portability()) {
    create.flags = VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR;
    create.enabledExtensionCount = 1;
    create.ppEnabledExtensionNames = &portability;
  }
  const VkResult result = loader().CreateInstance(&create, nullptr, &made.handle);
  if (result != VK_SUCCESS) {
    made.lack = "no Vulkan driver can be used: " + reason_text(result);
    return made;
  }
  made.functions = load_instance_functions(made.handle);
  return made;
}

/// What a device says of itself, as one chain of structures.
struct Answers {
  VkPhysicalDeviceProperties2 properties{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
  VkPhysicalDeviceVulkan11Properties properties11{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES};
  VkPhysicalDeviceVulkan12Properties properties12{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES};
  VkPhysicalDeviceVulkan13Properties properties13{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES};
  VkPhysicalDeviceFeatures2 features{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2};
  VkPhysicalDeviceVulkan11Features features11{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES};
  VkPhysicalDeviceVulkan12Features features12{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
  VkPhysicalDeviceVulkan13Features features13{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES};
  CooperativeMatrixFeatures matrices;
  Bfloat16Features bfloat16;
  std::vector<VkExtensionProperties> extensions;
  std::vector<VkQueueFamilyProperties> families;
  VkPhysicalDeviceMemoryProperties memory{};

  bool has(const char* extension) const { return has_extension(extensions, extension); }
  uint32_t version() const { return properties.properties.apiVersion; }
};

void ask_extensions(VkPhysicalDevice device, Answers& answers) {
  const InstanceFunctions& vk = instance().functions;
  uint32_t count = 0;
  check(vk.EnumerateDeviceExtensionProperties(device, nullptr, &count, nullptr), "listing a device's extensions");
  answers.extensions.resize(count);
  check(vk.EnumerateDeviceExtensionProperties(device, nullptr, &count, answers.extensions.data()),
        "listing a device's extensions");
}

/// A structure is asked for only where the device knows it.
void ask(VkPhysicalDevice device, Answers& answers) {
  const InstanceFunctions& vk = instance().functions;
  vk.GetPhysicalDeviceProperties2(device, &answers.properties);
  VkPhysicalDeviceMemoryProperties2 memory{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
  vk.GetPhysicalDeviceMemoryProperties2(device, &memory);
  answers.memory = memory.memoryProperties;
  if (answers.version() < kVersion) return;
  ask_extensions(device, answers);
  answers.properties.pNext = &answers.properties11;
  answers.properties11.pNext = &answers.properties12;
  answers.properties12.pNext = &answers.properties13;
  vk.GetPhysicalDeviceProperties2(device, &answers.properties);
  answers.features.pNext = &answers.features11;
  answers.features11.pNext = &answers.features12;
  answers.features12.pNext = &answers.features13;
  void** tail = &answers.features13.pNext;
  if (answers.has(kCooperativeMatrixExtension)) {
    *tail = &answers.matrices;
    tail = &answers.matrices.pNext;
  }
  if (answers.has(kBfloat16Extension)) *tail = &answers.bfloat16;
  vk.GetPhysicalDeviceFeatures2(device, &answers.features);
  uint32_t count = 0;
  vk.GetPhysicalDeviceQueueFamilyProperties(device, &count, nullptr);
  answers.families.resize(count);
  vk.GetPhysicalDeviceQueueFamilyProperties(device, &count, answers.families.data());
}

/// The first family that computes; -1 without.
int find_queue_family(const Answers& answers) {
  for (std::size_t i = 0; i < answers.families.size(); ++i) {
    if ((answers.families[i].queueFlags & VK_QUEUE_COMPUTE_BIT) != 0) return static_cast<int>(i);
  }
  return -1;
}

/// What Ferry cannot do without, and the device lacks; empty if nothing.
std::string find_lacks(const Answers& a) {
  const VkSubgroupFeatureFlags subgroup_ops = VK_SUBGROUP_FEATURE_BASIC_BIT | VK_SUBGROUP_FEATURE_ARITHMETIC_BIT |
                                              VK_SUBGROUP_FEATURE_SHUFFLE_BIT | VK_SUBGROUP_FEATURE_VOTE_BIT |
                                              VK_SUBGROUP_FEATURE_BALLOT_BIT;
  const VkPhysicalDeviceLimits& limits = a.properties.properties.limits;
  const struct {
    bool there;
    const char* name;
  } needs[] = {
      {a.features12.bufferDeviceAddress == VK_TRUE, "bufferDeviceAddress"},
      {a.features12.scalarBlockLayout == VK_TRUE, "scalarBlockLayout"},
      {a.features12.timelineSemaphore == VK_TRUE, "timelineSemaphore"},
      {a.features12.storageBuffer8BitAccess == VK_TRUE, "storageBuffer8BitAccess"},
      {a.features12.shaderInt8 == VK_TRUE, "shaderInt8"},
      {a.features12.vulkanMemoryModel == VK_TRUE, "vulkanMemoryModel"},
      {a.features11.storageBuffer16BitAccess == VK_TRUE, "storageBuffer16BitAccess"},
      {a.features.features.shaderInt16 == VK_TRUE, "shaderInt16"},
      {a.features.features.shaderInt64 == VK_TRUE, "shaderInt64"},
      {a.features13.synchronization2 == VK_TRUE, "synchronization2"},
      {a.features13.maintenance4 == VK_TRUE, "maintenance4"},
      {a.features13.subgroupSizeControl == VK_TRUE, "subgroupSizeControl"},
      {a.features13.computeFullSubgroups == VK_TRUE, "computeFullSubgroups"},
      {a.features13.shaderIntegerDotProduct == VK_TRUE, "shaderIntegerDotProduct"},
      {(a.properties11.subgroupSupportedOperations & subgroup_ops) == subgroup_ops, "subgroup arithmetic and shuffles"},
      {(a.properties11.subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0, "subgroups in compute shaders"},
      {find_queue_family(a) >= 0, "a queue that computes"},
      {limits.maxComputeWorkGroupInvocations >= 512, "workgroups of 512"},
      {limits.maxComputeSharedMemorySize >= 32768, "32 KiB of shared memory"},
  };
  std::string lacks;
  for (const auto& need : needs) {
    if (!need.there) lacks += (lacks.empty() ? "it lacks " : ", ") + std::string(need.name);
  }
  return lacks;
}

void find_fragments(VkPhysicalDevice device, const Answers& answers, DeviceTraits& traits) {
  const auto get = instance().functions.GetCooperativeMatrixProperties;
  if (answers.matrices.cooperativeMatrix != VK_TRUE || get == nullptr) return;
  uint32_t count = 0;
  check(get(device, &count, nullptr), "listing a device's matrices");
  std::vector<CooperativeMatrixProperties> shapes(count);
  check(get(device, &count, shapes.data()), "listing a device's matrices");
  // Of several shapes the one of the most products; the first of those.
  const auto largest = [&](ComponentType element, ComponentType sum) {
    Fragment best;
    for (const CooperativeMatrixProperties& s : shapes) {
      if (s.scope != kSubgroupScope || s.a != element || s.b != element || s.c != sum || s.result != sum || s.saturates)
        continue;
      if (s.m * s.n * s.k > best.m * best.n * best.k) best = {s.m, s.n, s.k};
    }
    return best;
  };
  if (answers.bfloat16.shaderBFloat16CooperativeMatrix == VK_TRUE)
    traits.bf16 = largest(ComponentType::kBfloat16, ComponentType::kFloat32);
  traits.f16 = largest(ComponentType::kFloat16, ComponentType::kFloat32);
  traits.int8 = largest(ComponentType::kSint8, ComponentType::kSint32);
}

/// Null without either.
const char* calibration_extension(const Answers& answers) {
  for (const char* name : {VK_EXT_CALIBRATED_TIMESTAMPS_EXTENSION_NAME, kCalibratedTimestampsExtension}) {
    if (answers.has(name)) return name;
  }
  return nullptr;
}

DeviceTraits find_traits(VkPhysicalDevice device, const Answers& answers, uint32_t queue_family) {
  const VkPhysicalDeviceLimits& limits = answers.properties.properties.limits;
  DeviceTraits traits{
      .subgroup_size = answers.properties11.subgroupSize,
      .shared_bytes = limits.maxComputeSharedMemorySize,
      .max_invocations = limits.maxComputeWorkGroupInvocations,
      .has_packed_dot = answers.properties13.integerDotProduct4x8BitPackedSignedAccelerated == VK_TRUE,
      .has_calibrated_time = calibration_extension(answers) != nullptr && find_host_clock(device).has_value(),
      .has_memory_budget = answers.has(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME),
      .max_buffer_bytes = std::min(answers.properties11.maxMemoryAllocationSize, answers.properties13.maxBufferSize),
  };
  traits.timestamp_bits = answers.families[queue_family].timestampValidBits;
  if (traits.timestamp_bits > 0) traits.timestamp_ns = limits.timestampPeriod;
  find_fragments(device, answers, traits);
  return traits;
}

std::vector<const char*> find_extensions(const Answers& answers, const DeviceTraits& traits) {
  std::vector<const char*> extensions;
  if (traits.bf16 || traits.f16 || traits.int8) extensions.push_back(kCooperativeMatrixExtension);
  if (traits.bf16) extensions.push_back(kBfloat16Extension);
  if (traits.has_calibrated_time) extensions.push_back(calibration_extension(answers));
  if (traits.has_memory_budget) extensions.push_back(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  if (answers.has("VK_KHR_portability_subset")) extensions.push_back("VK_KHR_portability_subset");
  return extensions;
}

std::string kind_name(VkPhysicalDeviceType type) {
  switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU: return "discrete GPU";
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU: return "integrated GPU";
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU: return "virtual GPU";
    case VK_PHYSICAL_DEVICE_TYPE_CPU: return "CPU";
    default: return "other";
  }
}

uint64_t largest_local_heap(const VkPhysicalDeviceMemoryProperties& memory) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < memory.memoryHeapCount; ++i) {
    if ((memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) != 0)
      bytes = std::max(bytes, memory.memoryHeaps[i].size);
  }
  return bytes;
}

PhysicalDevice describe(VkPhysicalDevice handle) {
  Answers answers;
  ask(handle, answers);
  const VkPhysicalDeviceProperties& properties = answers.properties.properties;
  PhysicalDevice device{.handle = handle,
                        .info = {.name = properties.deviceName,
                                 .kind = kind_name(properties.deviceType),
                                 .memory_bytes = largest_local_heap(answers.memory)},
                        .pipeline_owner = {.vendor_id = properties.vendorID, .device_id = properties.deviceID}};
  std::copy_n(properties.pipelineCacheUUID, VK_UUID_SIZE, device.pipeline_owner.driver_uuid.begin());
  if (answers.version() < kVersion) {
    device.info.refusal = "it speaks Vulkan " + version_text(answers.version()) + "; needed: " + version_text(kVersion);
    return device;
  }
  device.info.driver = std::string(answers.properties12.driverName) + " " + answers.properties12.driverInfo;
  device.info.refusal = find_lacks(answers);
  if (!device.info.refusal.empty()) return device;
  device.queue_family = static_cast<uint32_t>(find_queue_family(answers));
  device.traits = find_traits(handle, answers, device.queue_family);
  device.must_set_subgroup_size = answers.properties13.minSubgroupSize != answers.properties13.maxSubgroupSize;
  device.extensions = find_extensions(answers, device.traits);
  device.info.abilities = name_abilities(device.traits);
  return device;
}

}  // namespace

const Instance& instance() {
  static const Instance made = make_instance();
  return made;
}

std::optional<VkTimeDomainEXT> find_host_clock(VkPhysicalDevice device) {
  const auto get = instance().functions.GetCalibrateableTimeDomains;
  uint32_t count = 0;
  if (get == nullptr || get(device, &count, nullptr) != VK_SUCCESS) return std::nullopt;
  std::vector<VkTimeDomainEXT> domains(count);
  if (get(device, &count, domains.data()) != VK_SUCCESS) return std::nullopt;
  const auto has = [&](VkTimeDomainEXT domain) { return std::find(domains.begin(), domains.end(), domain) != domains.end(); };
  if (!has(VK_TIME_DOMAIN_DEVICE_EXT)) return std::nullopt;
  for (const VkTimeDomainEXT host : {VK_TIME_DOMAIN_CLOCK_MONOTONIC_EXT, VK_TIME_DOMAIN_CLOCK_MONOTONIC_RAW_EXT}) {
    if (has(host)) return host;
  }
  return std::nullopt;
}

namespace {

/// The loader also fails with this where a driver is there and no device, as its manifest alone is in a container.
std::vector<VkPhysicalDevice> list_handles(std::string& lack) {
  const auto enumerate = instance().functions.EnumeratePhysicalDevices;
  uint32_t count = 0;
  std::vector<VkPhysicalDevice> handles;
  VkResult result = enumerate(instance().handle, &count, nullptr);
  if (result == VK_SUCCESS) {
    handles.resize(count);
    result = enumerate(instance().handle, &count, handles.data());
  }
  handles.resize(result < 0 ? 0 : count);  // VK_INCOMPLETE: one has come in between
  if (result < 0) lack = "no Vulkan driver lists a device: " + reason_text(result);
  return handles;
}

}  // namespace

std::vector<PhysicalDevice> find_physical_devices(std::string* lack) {
  std::string why = instance().lack;
  std::vector<PhysicalDevice> devices;
  if (why.empty()) {
    for (VkPhysicalDevice handle : list_handles(why)) devices.push_back(describe(handle));
    if (devices.empty() && why.empty()) why = "no Vulkan driver lists a device";
  }
  if (lack != nullptr) *lack = std::move(why);
  return devices;
}

std::string fragment_text(const char* elements, Fragment fragment) {
  return std::string(elements) + " matrices " + std::to_string(fragment.m) + "x" + std::to_string(fragment.n) + "x" +
         std::to_string(fragment.k);
}

std::vector<std::string> name_abilities(const DeviceTraits& traits) {
  std::vector<std::string> names;
  if (traits.bf16) names.push_back(fragment_text("bf16", traits.bf16));
  if (traits.f16) names.push_back(fragment_text("f16", traits.f16));
  if (traits.int8) names.push_back(fragment_text("int8", traits.int8));
  if (traits.has_packed_dot) names.emplace_back("packed dot products");
  names.push_back("subgroups of " + std::to_string(traits.subgroup_size));
  if (traits.timestamp_ns > 0) names.emplace_back(traits.has_calibrated_time ? "calibrated timestamps" : "timestamps");
  if (traits.has_memory_budget) names.emplace_back("memory budget");
  return names;
}

uint64_t free_device_bytes(const PhysicalDevice& device) {
  VkPhysicalDeviceMemoryBudgetPropertiesEXT budget{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
  VkPhysicalDeviceMemoryProperties2 memory{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
  if (!device.traits.has_memory_budget) return device.info.memory_bytes;
  memory.pNext = &budget;
  instance().functions.GetPhysicalDeviceMemoryProperties2(device.handle, &memory);
  uint64_t free = 0;
  for (uint32_t i = 0; i < memory.memoryProperties.memoryHeapCount; ++i) {
    const bool is_local = (memory.memoryProperties.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) != 0;
    if (is_local && budget.heapBudget[i] > budget.heapUsage[i])
      free = std::max<uint64_t>(free, budget.heapBudget[i] - budget.heapUsage[i]);
  }
  return free;
}

DeviceList list_devices() {
  DeviceList list;
  for (PhysicalDevice& device : find_physical_devices(&list.lack)) list.devices.push_back(std::move(device.info));
  return list;
}

}  // namespace ferry::vulkan

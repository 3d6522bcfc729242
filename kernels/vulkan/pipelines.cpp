#include "kernels/vulkan/pipelines.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "kernels/vulkan/device.h"
#include "runtime/base/check.h"
#include "runtime/base/error.h"

namespace ferry::vulkan {

const ShaderCode* find_shader(std::string_view name) {
  const std::span<const ShaderCode> codes = shader_codes();
  const auto found = std::lower_bound(codes.begin(), codes.end(), name,
                                      [](const ShaderCode& code, std::string_view wanted) { return code.name < wanted; });
  FERRY_CHECK(found != codes.end() && found->name == name) << "there is no shader " << name;
  return &*found;
}

const ShaderCode* find_shader(std::string_view name, DType dtype) {
  std::string full(name);
  full += dtype == DType::kF32 ? ".f32" : ".bf16";
  return find_shader(full);
}

std::size_t Pipelines::Hash::operator()(const Kernel& kernel) const {
  std::size_t hash = reinterpret_cast<std::size_t>(kernel.code);
  for (const uint32_t constant : kernel.constants) hash = (hash ^ constant) * 0x9e3779b97f4a7c15ULL;
  return hash ^ (hash >> 32);
}

Pipelines::Pipelines(Device& device, PipelineFile file) : device_(device), file_(std::move(file)) {
  const VkPushConstantRange push{.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT, .size = kMaxPushBytes};
  const VkPipelineLayoutCreateInfo layout{
      .sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO, .pushConstantRangeCount = 1, .pPushConstantRanges = &push};
  check(device.vk().CreatePipelineLayout(device.handle(), &layout, nullptr, &layout_), "making a pipeline layout");
  make_cache();
}

/// Drivers look through the data that they are given; one that refuses them begins with nothing.
void Pipelines::make_cache() {
  const std::vector<std::byte> kept = file_.read();
  VkPipelineCacheCreateInfo cache{
      .sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO, .initialDataSize = kept.size(), .pInitialData = kept.data()};
  if (device_.vk().CreatePipelineCache(device_.handle(), &cache, nullptr, &cache_) == VK_SUCCESS) return;
  cache.initialDataSize = 0;
  check(device_.vk().CreatePipelineCache(device_.handle(), &cache, nullptr, &cache_), "making a pipeline cache");
}

void Pipelines::save() noexcept {
  if (num_unsaved_ == 0) return;
  num_unsaved_ = 0;
  try {
    const DeviceFunctions& vk = device_.vk();
    std::size_t size = 0;
    if (vk.GetPipelineCacheData(device_.handle(), cache_, &size, nullptr) != VK_SUCCESS) return;
    std::vector<std::byte> data(size);
    if (vk.GetPipelineCacheData(device_.handle(), cache_, &size, data.data()) != VK_SUCCESS) return;
    file_.write(std::span(data).first(size));
  } catch (const std::exception&) {  // no memory for the copy, or no place for the file
  }
}

Pipelines::~Pipelines() {
  save();
  for (const auto& [kernel, pipeline] : made_) device_.vk().DestroyPipeline(device_.handle(), pipeline, nullptr);
  device_.vk().DestroyPipelineCache(device_.handle(), cache_, nullptr);
  device_.vk().DestroyPipelineLayout(device_.handle(), layout_, nullptr);
}

VkPipeline Pipelines::get(const Kernel& kernel) {
  const std::lock_guard lock(mutex_);
  VkPipeline& pipeline = made_[kernel];
  if (pipeline != VK_NULL_HANDLE) return pipeline;
  pipeline = make(kernel);
  if (num_unsaved_ >= kSaveEvery) save();
  return pipeline;
}

void Pipelines::prepare(std::span<const Kernel> kernels, ThreadPool& pool) {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<const Kernel, VkPipeline>*> missing;
  for (const Kernel& kernel : kernels) {
    const auto [made, is_new] = made_.try_emplace(kernel, VK_NULL_HANDLE);
    if (is_new) missing.push_back(&*made);
  }
  pool.parallel_for(std::ssize(missing), [&](int64_t i, int) {
    auto& [kernel, pipeline] = *missing[static_cast<std::size_t>(i)];
    try {
      pipeline = make(kernel);
    } catch (const Error&) {  // whoever needs it is told
    }
  });
  save();
}

VkPipeline Pipelines::make(const Kernel& kernel) {
  const DeviceFunctions& vk = device_.vk();
  const VkShaderModuleCreateInfo code{.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                      .codeSize = kernel.code->words.size_bytes(),
                                      .pCode = kernel.code->words.data()};
  const std::string what = "compiling shader " + std::string(kernel.code->name);
  VkShaderModule module = VK_NULL_HANDLE;
  check(vk.CreateShaderModule(device_.handle(), &code, nullptr, &module), what.c_str());
  std::array<VkSpecializationMapEntry, Kernel::kMaxConstants> entries{};
  for (uint32_t i = 0; i < entries.size(); ++i) entries[i] = {.constantID = i, .offset = i * 4, .size = 4};
  const VkSpecializationInfo constants{.mapEntryCount = Kernel::kMaxConstants,
                                       .pMapEntries = entries.data(),
                                       .dataSize = sizeof(kernel.constants),
                                       .pData = kernel.constants.data()};
  const uint32_t subgroup_size = device_.traits().subgroup_size;
  const VkPipelineShaderStageRequiredSubgroupSizeCreateInfo size{
      .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO,
      .requiredSubgroupSize = subgroup_size};
  VkPipelineCreationFeedback whole{}, stage{};
  const VkPipelineCreationFeedbackCreateInfo feedback{.sType = VK_STRUCTURE_TYPE_PIPELINE_CREATION_FEEDBACK_CREATE_INFO,
                                                      .pPipelineCreationFeedback = &whole,
                                                      .pipelineStageCreationFeedbackCount = 1,
                                                      .pPipelineStageCreationFeedbacks = &stage};
  VkComputePipelineCreateInfo create{
      .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO, .pNext = &feedback, .layout = layout_};
  create.stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .pNext = device_.physical().must_set_subgroup_size ? &size : nullptr,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = module,
                  .pName = "main",
                  .pSpecializationInfo = &constants};
  if (kernel.constants[0] % subgroup_size == 0) create.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
  VkPipeline pipeline = VK_NULL_HANDLE;
  const VkResult result = vk.CreateComputePipelines(device_.handle(), cache_, 1, &create, nullptr, &pipeline);
  vk.DestroyShaderModule(device_.handle(), module, nullptr);
  check(result, what.c_str());
  ++num_made_;
  if ((whole.flags & VK_PIPELINE_CREATION_FEEDBACK_APPLICATION_PIPELINE_CACHE_HIT_BIT) == 0) ++num_unsaved_;
  return pipeline;
}

}  // namespace ferry::vulkan

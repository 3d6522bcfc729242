#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <unordered_map>

#include "kernels/vulkan/api.h"
#include "kernels/vulkan/pipeline_file.h"
#include "kernels/vulkan/shader_code.h"
#include "runtime/base/thread_pool.h"
#include "runtime/base/types.h"

namespace ferry::vulkan {

class Device;

/// A shader made ready for a purpose: its code and the values of its specialisation constants. Constant 0 is the number of
/// invocations of a workgroup.
struct Kernel {
  static constexpr std::size_t kMaxConstants = 12;

  const ShaderCode* code = nullptr;
  std::array<uint32_t, kMaxConstants> constants{};  // those that the shader does not have are ignored

  friend bool operator==(const Kernel&, const Kernel&) = default;
};

/// The module called `name`, or `name`.f32 or `name`.bf16, as in shaders/modules.txt. Dies if there is none.
const ShaderCode* find_shader(std::string_view name);
const ShaderCode* find_shader(std::string_view name, DType dtype);

/// The pipelines of a device, made when they are first asked for. Any thread.
class Pipelines {
 public:
  /// What the driver compiles is kept in `file`: at the end, and whenever kSaveEvery pipelines were compiled anew, since a
  /// server may run for months, or be killed. The device outlives it.
  Pipelines(Device& device, PipelineFile file);
  ~Pipelines();
  Pipelines(const Pipelines&) = delete;
  Pipelines& operator=(const Pipelines&) = delete;

  /// Throws Error{kInternal} if the driver refuses the shader.
  VkPipeline get(const Kernel& kernel);
  /// Makes those of `kernels` that are not made yet, on the pool. One that the driver refuses is tried again when it is asked
  /// for.
  void prepare(std::span<const Kernel> kernels, ThreadPool& pool);
  /// Of all calls.
  int64_t num_made() const { return num_made_; }
  /// Of all of them: push constants of up to kMaxPushBytes, no descriptors.
  VkPipelineLayout layout() const { return layout_; }

  static constexpr uint32_t kMaxPushBytes = 128;
  static constexpr int kSaveEvery = 16;

 private:
  struct Hash {
    std::size_t operator()(const Kernel& kernel) const;
  };

  void make_cache();
  VkPipeline make(const Kernel& kernel);
  void save() noexcept;

  Device& device_;
  VkPipelineLayout layout_ = VK_NULL_HANDLE;
  PipelineFile file_;
  VkPipelineCache cache_ = VK_NULL_HANDLE;
  std::mutex mutex_;
  std::atomic<int64_t> num_made_{0};
  std::atomic<int> num_unsaved_{0};  // pipelines that the file had not
  std::unordered_map<Kernel, VkPipeline, Hash> made_;
};

}  // namespace ferry::vulkan

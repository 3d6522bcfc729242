#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace ferry::vulkan {

/// A compiled shader: SPIR-V of one module of shaders/modules.txt.
struct ShaderCode {
  std::string_view name;
  std::span<const uint32_t> words;
};

/// All of them, sorted by name. They live as long as the process.
std::span<const ShaderCode> shader_codes();

}  // namespace ferry::vulkan

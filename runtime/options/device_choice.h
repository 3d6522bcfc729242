#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ferry {

/// What --device asks for.
struct DeviceChoice {
  enum class Kind {
    kCpu,
    kAuto,    // a GPU if there is one that can be used, else the CPU
    kVulkan,  // a Vulkan device
  };
  static constexpr int kMaxIndex = 255;

  Kind kind = Kind::kCpu;
  std::optional<int> index;  // of kVulkan: the device's, as `ferry devices` numbers them; absent: this rank's share of them

  friend bool operator==(const DeviceChoice&, const DeviceChoice&) = default;
};

/// What --device allows, in words.
inline constexpr const char* kDeviceChoices = "cpu, auto, vulkan, or vulkan:N with N as `ferry devices` numbers them";

/// Nothing for other text.
std::optional<DeviceChoice> parse_device_choice(std::string_view text);
/// As it is given: "cpu", "auto", "vulkan", "vulkan:1".
std::string device_choice_name(const DeviceChoice& choice);

}  // namespace ferry

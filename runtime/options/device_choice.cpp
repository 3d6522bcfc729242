#include "runtime/options/device_choice.h"

#include "runtime/options/option_checks.h"

namespace ferry {

std::optional<DeviceChoice> parse_device_choice(std::string_view text) {
  using Kind = DeviceChoice::Kind;
  constexpr std::string_view kIndexed = "vulkan:";
  if (text == "cpu") return DeviceChoice{Kind::kCpu, std::nullopt};
  if (text == "auto") return DeviceChoice{Kind::kAuto, std::nullopt};
  if (text == "vulkan") return DeviceChoice{Kind::kVulkan, std::nullopt};
  if (!text.starts_with(kIndexed)) return std::nullopt;
  const auto index = parse_number<int>(std::string(text.substr(kIndexed.size())));
  if (!index || *index < 0 || *index > DeviceChoice::kMaxIndex) return std::nullopt;
  return DeviceChoice{Kind::kVulkan, index};
}

std::string device_choice_name(const DeviceChoice& choice) {
  switch (choice.kind) {
    case DeviceChoice::Kind::kCpu: return "cpu";
    case DeviceChoice::Kind::kAuto: return "auto";
    case DeviceChoice::Kind::kVulkan: return choice.index ? "vulkan:" + std::to_string(*choice.index) : "vulkan";
  }
  return "";
}

}  // namespace ferry

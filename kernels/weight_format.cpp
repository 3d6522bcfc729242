#include "kernels/weight_format.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace ferry {

std::string weight_type_name(WeightType type) {
  switch (type.format) {
    case WeightFormat::kF32: return "f32";
    case WeightFormat::kBF16: return "bf16";
    case WeightFormat::kInt8: return "w8a8";
    case WeightFormat::kInt4: return "w4a8:" + std::to_string(type.group_size) + (type.is_wide ? ":wide" : "");
    case WeightFormat::kE4M3: return "e4m3:" + std::to_string(type.group_size);
  }
  return "";
}

std::optional<WeightType> parse_quantized_type(std::string_view text) {
  if (text == "w8a8") return WeightType{WeightFormat::kInt8};
  if (text == "w4a8") return WeightType{WeightFormat::kInt4};
  WeightType type;
  for (const auto& [name, format] : {std::pair{"w4a8:", WeightFormat::kInt4}, std::pair{"e4m3:", WeightFormat::kE4M3}}) {
    if (text.starts_with(name)) type.format = format;
  }
  constexpr std::string_view kWide = ":wide";
  if (type.format == WeightFormat::kInt4 && text.ends_with(kWide)) {
    type.is_wide = true;
    text.remove_suffix(kWide.size());
  }
  text.remove_prefix(std::min(text.size(), text.find(':') + 1));
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), type.group_size);
  if (type.format == WeightFormat::kBF16 || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return is_group_size(type.group_size) ? std::optional(type) : std::nullopt;
}

}  // namespace ferry

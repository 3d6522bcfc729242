#include "kernels/weight_format.h"

#include <charconv>

namespace ferry {

std::string weight_type_name(WeightType type) {
  switch (type.format) {
    case WeightFormat::kF32: return "f32";
    case WeightFormat::kBF16: return "bf16";
    case WeightFormat::kInt8: return "w8a8";
    case WeightFormat::kInt4: return "w4a8:" + std::to_string(type.group_size);
  }
  return "";
}

std::optional<WeightType> parse_quantized_type(std::string_view text) {
  if (text == "w8a8") return WeightType{WeightFormat::kInt8, 0};
  constexpr std::string_view kInt4Name = "w4a8";
  if (!text.starts_with(kInt4Name)) return std::nullopt;
  text.remove_prefix(kInt4Name.size());
  if (text.empty()) return WeightType{WeightFormat::kInt4, 0};
  if (text.front() != ':') return std::nullopt;
  text.remove_prefix(1);
  int32_t group_size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), group_size);
  const bool is_known = group_size == 32 || group_size == 64 || group_size == 128 || group_size == 256;
  if (error != std::errc() || end != text.data() + text.size() || !is_known) return std::nullopt;
  return WeightType{WeightFormat::kInt4, group_size};
}

}  // namespace ferry

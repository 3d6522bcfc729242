#include "runtime/checkpoint/quantization.h"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/quoting.h"

namespace ferry {
namespace {

constexpr const char* kAllowedQuantization =
    "none, native (the codes that the checkpoint holds), w8a8, w4a8, w4a8:G with groups of G = 32, 64, 128 or 256, or "
    "PART=TYPE,… with the parts experts, shared, mixers, "
    "lm_head";

using QuantizedPart = std::optional<WeightType> Quantization::*;
constexpr std::array<std::pair<std::string_view, QuantizedPart>, 4> kParts = {{{"experts", &Quantization::experts},
                                                                               {"shared", &Quantization::shared},
                                                                               {"mixers", &Quantization::mixers},
                                                                               {"lm_head", &Quantization::lm_head}}};

/// Whether `text` is a type or "none", which becomes `type`.
bool parse_type(std::string_view text, std::optional<WeightType>& type) {
  type = parse_quantized_type(text);
  return type || text == "none";
}

/// Whether `item` is "PART=TYPE", which is put into `out`.
bool parse_part(std::string_view item, Quantization& out) {
  const std::size_t equals = item.find('=');
  if (equals == std::string_view::npos) return false;
  const auto part = std::ranges::find(kParts, item.substr(0, equals), [](const auto& p) { return p.first; });
  return part != kParts.end() && parse_type(item.substr(equals + 1), out.*part->second);
}

std::string type_name(const std::optional<WeightType>& type) {
  if (!type) return "none";
  return type->format == WeightFormat::kInt4 && type->group_size == 0 ? "w4a8" : weight_type_name(*type);
}

}  // namespace

std::optional<WeightType> with_group_size(const std::optional<WeightType>& type, int64_t k) {
  if (!type || type->format != WeightFormat::kInt4 || type->group_size != 0) return type;
  return WeightType{type->format, k % kDefaultGroupSize == 0 ? kDefaultGroupSize : kDefaultGroupSize / 2};
}

double bytes_per_weight(const std::optional<WeightType>& type, DType dtype) {
  if (!type) return static_cast<double>(dtype_bytes(dtype));
  if (type->format == WeightFormat::kInt8) return 1.0;
  const int32_t group_size = type->group_size == 0 ? kDefaultGroupSize : type->group_size;
  if (type->format == WeightFormat::kE4M3) return 1.0 + 4.0 / group_size;
  return 0.5 + (type->is_wide ? 4.0 : 2.0) / group_size;
}

bool Quantization::has_stored_codes() const {
  for (const auto& [name, part] : kParts) {
    if (this->*part && (this->*part)->is_as_stored()) return true;
  }
  return false;
}

Quantization parse_quantization(std::string_view text) {
  if (text == "native") return {.is_native = true};
  const std::optional<Quantization> out = parse_packed_quantization(text);
  if (!out || out->has_stored_codes()) throw_invalid("--quantize is " + in_quotes(text) + "; allowed: " + kAllowedQuantization);
  return *out;
}

std::optional<Quantization> parse_packed_quantization(std::string_view text) {
  Quantization out;
  if (text.find('=') == std::string_view::npos) {
    std::optional<WeightType> type;
    if (!parse_type(text, type)) return std::nullopt;
    for (const auto& [name, part] : kParts) out.*part = type;
    return out;
  }
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(item.size() + 1, rest.size()));
    if (!parse_part(item, out)) return std::nullopt;
  }
  return out;
}

std::string quantization_name(const Quantization& q) {
  if (q.is_native) return "native";
  if (q.experts == q.shared && q.experts == q.mixers && q.experts == q.lm_head) return type_name(q.experts);
  std::string text;
  for (const auto& [name, part] : kParts) {
    if (q.*part) text += (text.empty() ? "" : ",") + std::string(name) + "=" + type_name(q.*part);
  }
  return text;
}

}  // namespace ferry

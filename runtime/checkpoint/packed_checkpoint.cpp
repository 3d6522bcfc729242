#include "runtime/checkpoint/packed_checkpoint.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "kernels/cpu/panel_layout.h"
#include "profiler/write_file.h"
#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/quoting.h"

namespace ferry {
namespace {

using Json = nlohmann::json;
constexpr const char* kFormat = "ferry panels";

PanelColumns columns_of(const PanelShape& shape) { return {shape.n, shape.use == WeightUse::kGated}; }

/// The value of a key that the mark must have.
const Json& field(const Json& mark, const char* key, const std::string& path) {
  const auto it = mark.find(key);
  if (it == mark.end()) throw_invalid(path + ": no '" + std::string(key) + "'; is it of `ferry quantize`?");
  return *it;
}

[[noreturn]] void refuse(const TensorInfo& tensor, const std::string& complaint) {
  throw_invalid(std::string(tensor.file) + ": tensor " + tensor.name + " " + complaint);
}

/// The scale of column `col` in the `group_idx`-th group of an int4 panel.
float int4_scale(const std::byte* panel, int64_t group_size, int64_t group_idx, int64_t col) {
  uint16_t word = 0;
  const std::byte* words = panel + group_idx * int4_group_bytes(group_size) + group_size * kPanelCols / 2;
  std::memcpy(&word, words + col * static_cast<int64_t>(sizeof(word)), sizeof(word));
  return std::bit_cast<float>(static_cast<uint32_t>(word >> 4) << 19);
}

float int8_scale(const std::byte* panel, int64_t k, int64_t col) {
  float scale = 0;
  const std::byte* scales = panel + padded_k(WeightFormat::kInt8, k) * kPanelCols;
  std::memcpy(&scale, scales + col * static_cast<int64_t>(sizeof(scale)), sizeof(scale));
  return scale;
}

}  // namespace

std::optional<Quantization> read_packed_mark(const std::filesystem::path& dir) {
  const std::filesystem::path path = dir / kPackedMark;
  if (!std::filesystem::exists(path)) return std::nullopt;
  const std::string name = path.string();
  const Json mark = read_json_file(path, kNoDuplicates);
  if (!mark.is_object()) throw_invalid(name + ": is " + shown(mark) + "; allowed: an object");
  const Json& format = field(mark, "format", name);
  if (format != kFormat) throw_invalid(name + ": format is " + shown(format) + "; allowed: \"" + kFormat + "\"");
  const Json& version = field(mark, "version", name);
  if (version != kPackedVersion) {
    throw_invalid(name + ": version is " + shown(version) + "; allowed: " + std::to_string(kPackedVersion) +
                  " (run `ferry quantize` of this program on the original checkpoint)");
  }
  const Json& text = field(mark, "quantize", name);
  if (!text.is_string()) throw_invalid(name + ": quantize is " + shown(text) + "; allowed: a string such as \"w4a8\"");
  try {
    const Quantization quantization = parse_quantization(text.get<std::string>());
    if (quantization.any()) return quantization;
  } catch (const Error& error) {
    throw_invalid(name + ": " + error.what());
  }
  throw_invalid(name + ": quantize is " + shown(text) + "; allowed: what quantises a matrix");
}

void write_packed_mark(const std::filesystem::path& dir, const Quantization& quantization) {
  nlohmann::ordered_json mark;
  mark["format"] = kFormat;
  mark["version"] = kPackedVersion;
  mark["quantize"] = quantization_name(quantization);
  write_file(dir / kPackedMark, [&](std::ostream& out) { out << mark.dump(1) << '\n'; });
}

WeightPlan plan_weights(const std::filesystem::path& dir, const std::optional<Quantization>& asked) {
  const std::optional<Quantization> packed = read_packed_mark(dir);
  if (!packed) return {asked.value_or(Quantization{}), false};
  if (asked && *asked != *packed) {
    const std::string held = quantization_name(*packed);
    throw_invalid("--quantize is '" + quantization_name(*asked) + "', but " + dir.string() + " holds '" + held +
                  "' packed; allowed: " + held + ", or no --quantize");
  }
  return {*packed, true};
}

int64_t PanelShape::num_panels() const { return columns_of(*this).num_panels(); }
int64_t PanelShape::panel_bytes() const { return ferry::panel_bytes(type, k); }

std::string panels_name(const std::string& matrix) { return matrix + ".panels"; }

std::string panels_note(const PanelShape& shape) {
  return weight_type_name(shape.type) + " [" + std::to_string(shape.n) + ", " + std::to_string(shape.k) + "]" +
         (shape.use == WeightUse::kGated ? " gated" : "");
}

void check_panels(const TensorInfo& tensor, const PanelShape& shape) {
  if (tensor.dtype != StoredType::kU8) {
    refuse(tensor, std::string("has type ") + stored_type_name(tensor.dtype) + "; allowed: U8");
  }
  const std::string note = panels_note(shape);
  if (tensor.note != note) {
    refuse(tensor, (tensor.note.empty() ? "is not described in __metadata__" : "holds " + in_quotes(tensor.note)) +
                       "; config.json and " + kPackedMark + " ask for '" + note + "'");
  }
  if (tensor.shape != std::vector<int64_t>{shape.num_panels(), shape.panel_bytes()}) {
    refuse(tensor, "has shape " + tensor.shape_string() + "; " + note + " takes [" + std::to_string(shape.num_panels()) + ", " +
                       std::to_string(shape.panel_bytes()) + "]");
  }
  const auto offset = reinterpret_cast<uintptr_t>(tensor.data) % static_cast<uintptr_t>(kLineBytes);
  if (offset != 0) {
    refuse(tensor, "begins " + std::to_string(offset) + " bytes behind a multiple of " + std::to_string(kLineBytes) +
                       " in the file; allowed: a multiple, as `ferry quantize` writes it");
  }
}

void check_panels_finite(const TensorInfo& tensor, const PanelShape& shape) {
  const bool is_int4 = shape.type.format == WeightFormat::kInt4;
  const int64_t num_groups = is_int4 ? shape.k / shape.type.group_size : 1;
  for (int64_t p = 0; p < shape.num_panels(); ++p) {
    const std::byte* panel = tensor.data + p * shape.panel_bytes();
    for (int64_t i = 0; i < num_groups * kPanelCols; ++i) {
      const int64_t group = i / kPanelCols, col = i % kPanelCols;
      const float scale = is_int4 ? int4_scale(panel, shape.type.group_size, group, col) : int8_scale(panel, shape.k, col);
      if (std::isfinite(scale)) continue;
      refuse(tensor, "has the scale " + std::to_string(scale) + " in panel " + std::to_string(p) + ", column " +
                         std::to_string(col) + "; scales must be finite");
    }
  }
}

}  // namespace ferry

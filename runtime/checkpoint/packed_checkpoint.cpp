#include "runtime/checkpoint/packed_checkpoint.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <system_error>

#include "kernels/cpu/panel_layout.h"
#include "kernels/e4m3.h"
#include "profiler/write_file.h"
#include "runtime/base/content_hash.h"
#include "runtime/base/error.h"
#include "runtime/base/is_there.h"
#include "runtime/base/json.h"
#include "runtime/base/quoting.h"

namespace ferry {
namespace {

using Json = nlohmann::json;
constexpr const char* kFormat = "ferry panels";
constexpr const char* kOwnChecksum = "checksum";  // the mark's last key

PanelColumns columns_of(const PanelShape& shape) { return {shape.n, shape.use == WeightUse::kGated}; }

/// The value of a key that the mark must have.
const Json& field(const Json& mark, const char* key, const std::string& path) {
  const auto it = mark.find(key);
  if (it == mark.end()) throw_invalid(path + ": no '" + std::string(key) + "'; is it of `ferry quantize`?");
  return *it;
}

/// Returns the checksum of the mark's text in front of its last key, which holds it.
std::string own_checksum(std::string_view text) {
  const std::string_view before = text.substr(0, text.rfind('"' + std::string(kOwnChecksum) + '"'));
  return checksum_text(content_hash(std::as_bytes(std::span(before))));
}

/// The checksums that a mark has of other files, once its own is right. Another key may be one of these that was damaged.
std::map<std::string, std::string> read_file_checksums(const Json& mark, std::string_view text, const std::string& name) {
  for (const auto& [key, value] : mark.items()) {
    const bool is_known = key == "format" || key == "version" || key == "quantize" || key == "files" || key == kOwnChecksum;
    if (!is_known)
      throw_invalid(name + ": has the key " + in_quotes(key) + "; allowed: format, version, quantize, files, checksum");
  }
  if (!mark.contains("files") && !mark.contains(kOwnChecksum)) return {};
  const Json& own = field(mark, kOwnChecksum, name);
  if (const std::string found = own_checksum(text); own != Json(found))
    throw_invalid(name + ": is damaged: it has the checksum \"" + found + "\"; it says " + shown(own));
  const Json& files = field(mark, "files", name);
  std::map<std::string, std::string> checksums;
  for (const auto& [file, checksum] : files.items()) {
    if (!checksum.is_string() || !is_plain_file_name(file))
      throw_invalid(name + ": " + in_quotes(file) + " has " + shown(checksum) +
                    "; allowed: the checksum of a file in the folder");
    checksums.emplace(file, checksum.get<std::string>());
  }
  if (!checksums.contains(kChecksumsFile)) throw_invalid(name + ": has no checksum of " + kChecksumsFile);
  return checksums;
}

/// Returns whether checksums.json is there as `ferry quantize` writes it. Other programs may use the name, too.
bool has_own_checksums(const std::filesystem::path& dir) {
  const std::filesystem::path path = dir / kChecksumsFile;
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) && read_text_file(path).find(kChecksumsFormat) != std::string::npos;
}

/// The `col`-th of the words at `words`.
template <class Word>
Word word_at(const std::byte* words, int64_t col) {
  Word word{};
  std::memcpy(&word, words + col * static_cast<int64_t>(sizeof(word)), sizeof(word));
  return word;
}

/// The group's elements of k, padding included; int8 has one group.
int64_t elements_of(const PanelShape& shape, int64_t group_idx) {
  const int64_t padded = padded_k(shape.type.format, shape.k), size = shape.type.group_size;
  return size == 0 ? padded : std::min(size, padded - group_idx * size);
}

/// The words behind the codes of a group.
const std::byte* words_of(const PanelShape& shape, const std::byte* panel, int64_t group_idx) {
  const int64_t code_bytes = elements_of(shape, group_idx) * kPanelCols;
  return panel + group_idx * group_bytes(shape.type) + code_bytes / (shape.type.format == WeightFormat::kInt4 ? 2 : 1);
}

/// The scale of column `col` in a group.
float scale_of(const PanelShape& shape, const std::byte* panel, int64_t group_idx, int64_t col) {
  const std::byte* words = words_of(shape, panel, group_idx);
  if (shape.type.format != WeightFormat::kInt4) return word_at<float>(words, col);
  if (shape.type.is_wide) return std::bit_cast<float>(word_at<uint32_t>(words, col) & ~0xFU);
  return std::bit_cast<float>(static_cast<uint32_t>(word_at<uint16_t>(words, col) >> 4) << 19);
}

/// Whether a code of a group is no number, which only e4m3 has.
bool has_nan(const PanelShape& shape, const std::byte* panel, int64_t group_idx) {
  if (shape.type.format != WeightFormat::kE4M3) return false;
  const std::byte* codes = panel + group_idx * group_bytes(shape.type);
  return std::any_of(codes, codes + elements_of(shape, group_idx) * kPanelCols,
                     [](std::byte code) { return (code & std::byte{0x7F}) == std::byte{kE4M3NaN}; });
}

}  // namespace

std::optional<PackedMark> read_packed_mark(const std::filesystem::path& dir) {
  const std::filesystem::path path = dir / kPackedMark;
  const std::string name = path.string();
  if (!is_there(path)) {
    if (has_own_checksums(dir))
      throw_invalid(name + ": is missing, but " + kChecksumsFile + " is there; allowed: a whole folder of `ferry quantize`");
    return std::nullopt;
  }
  const std::string text = read_text_file(path);
  const Json mark = parse_json(text, name, kNoDuplicates);
  if (!mark.is_object()) throw_invalid(name + ": is " + shown(mark) + "; allowed: an object");
  const Json& format = field(mark, "format", name);
  if (format != kFormat) throw_invalid(name + ": format is " + shown(format) + "; allowed: \"" + kFormat + "\"");
  const Json& version = field(mark, "version", name);
  if (version != kPackedVersion) {
    throw_invalid(name + ": version is " + shown(version) + "; allowed: " + std::to_string(kPackedVersion) +
                  " (run `ferry quantize` of this program on the original checkpoint)");
  }
  const Json& quantize = field(mark, "quantize", name);
  const auto quantization = quantize.is_string() ? parse_packed_quantization(quantize.get<std::string>()) : std::nullopt;
  if (!quantization || !quantization->any()) {
    throw_invalid(name + ": quantize is " + shown(quantize) +
                  "; allowed: what `ferry quantize` wrote, such as \"w8a8\" or \"experts=e4m3:128,shared=e4m3:128\"");
  }
  return PackedMark{.quantization = *quantization, .files = read_file_checksums(mark, text, name)};
}

void write_packed_mark(const std::filesystem::path& dir, const PackedMark& mark) {
  nlohmann::ordered_json json;
  json["format"] = kFormat;
  json["version"] = kPackedVersion;
  json["quantize"] = quantization_name(mark.quantization);
  if (mark.has_checksums()) {
    json["files"] = mark.files;
    json[kOwnChecksum] = "";
    json[kOwnChecksum] = own_checksum(json.dump(1));
  }
  write_file(dir / kPackedMark, [&](std::ostream& out) { out << json.dump(1) << '\n'; });
}

std::string read_packed_file(const std::filesystem::path& dir, const PackedMark& mark, const std::string& name) {
  const std::string path = (dir / name).string(), mark_name = kPackedMark;
  const auto expected = mark.files.find(name);
  if (expected == mark.files.end()) throw_invalid(path + ": " + mark_name + " has no checksum of it");
  if (!is_there(path)) throw Error(ErrorCode::kNotFound, path + ": is missing; " + mark_name + " has a checksum of it");
  std::string text = read_text_file(path);
  const std::string found = checksum_text(content_hash(std::as_bytes(std::span(text))));
  if (found == expected->second) return text;
  throw_invalid(path + ": is not as `ferry quantize` wrote it: it has the checksum " + found + "; " + mark_name + " has " +
                expected->second);
}

std::string read_checked_file(const std::filesystem::path& dir, const std::string& name) {
  const std::optional<PackedMark> mark = read_packed_mark(dir);
  return mark && mark->files.contains(name) ? read_packed_file(dir, *mark, name) : read_text_file(dir / name);
}

void check_packed_files(const std::filesystem::path& dir, const PackedMark& mark) {
  for (const auto& file : mark.files) read_packed_file(dir, mark, file.first);
}

void refuse_unlisted(const std::filesystem::path& path) {
  throw_invalid(path.string() + ": is not in " + kPackedMark + " or " + kChecksumsFile +
                "; allowed: what `ferry quantize` wrote");
}

FolderChecksums read_packed_checksums(const std::filesystem::path& dir, const PackedMark& mark) {
  return parse_checksums(read_packed_file(dir, mark, kChecksumsFile), (dir / kChecksumsFile).string());
}

WeightPlan plan_weights(const std::filesystem::path& dir, const std::optional<Quantization>& asked) {
  const std::optional<PackedMark> mark = read_packed_mark(dir);
  if (!mark) return {asked.value_or(Quantization{}), false};
  const Quantization* const packed = &mark->quantization;
  const bool is_native = asked && asked->is_native && packed->has_stored_codes();
  if (asked && !is_native && *asked != *packed) {
    const std::string held = quantization_name(*packed);
    throw_invalid("--quantize is '" + quantization_name(*asked) + "', but " + dir.string() + " holds '" + held +
                  "' packed; allowed: " + (packed->has_stored_codes() ? "native" : held) + ", or no --quantize");
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
    refuse_tensor(tensor, std::string("has type ") + stored_type_name(tensor.dtype) + "; allowed: U8");
  }
  const std::string note = panels_note(shape);
  if (tensor.note != note) {
    refuse_tensor(tensor, (tensor.note.empty() ? "is not described in __metadata__" : "holds " + in_quotes(tensor.note)) +
                              "; config.json and " + kPackedMark + " ask for '" + note + "'");
  }
  if (tensor.shape != std::vector<int64_t>{shape.num_panels(), shape.panel_bytes()}) {
    refuse_tensor(tensor, "has shape " + tensor.shape_string() + "; " + note + " takes [" + std::to_string(shape.num_panels()) +
                              ", " + std::to_string(shape.panel_bytes()) + "]");
  }
  const auto offset = reinterpret_cast<uintptr_t>(tensor.data) % static_cast<uintptr_t>(kLineBytes);
  if (offset != 0) {
    refuse_tensor(tensor, "begins " + std::to_string(offset) + " bytes behind a multiple of " + std::to_string(kLineBytes) +
                              " in the file; allowed: a multiple, as `ferry quantize` writes it");
  }
}

void check_panels_finite(const TensorInfo& tensor, const PanelShape& shape) {
  const int64_t size = shape.type.group_size == 0 ? shape.k : shape.type.group_size;
  const int64_t num_groups = (shape.k + size - 1) / size;
  for (int64_t p = 0; p < shape.num_panels(); ++p) {
    const std::byte* panel = tensor.data + p * shape.panel_bytes();
    for (int64_t i = 0; i < num_groups * kPanelCols; ++i) {
      const int64_t group = i / kPanelCols, col = i % kPanelCols;
      if (col == 0 && has_nan(shape, panel, group)) {
        refuse_tensor(tensor, "has a code that is no number in panel " + std::to_string(p) + "; weights must be finite");
      }
      const float scale = scale_of(shape, panel, group, col);
      if (std::isfinite(scale)) continue;
      refuse_tensor(tensor, "has the scale " + std::to_string(scale) + " in panel " + std::to_string(p) + ", column " +
                                std::to_string(col) + "; scales must be finite");
    }
  }
}

}  // namespace ferry

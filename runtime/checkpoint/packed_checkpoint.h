#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "kernels/matmul.h"
#include "kernels/weight_format.h"
#include "runtime/checkpoint/checksums.h"
#include "runtime/checkpoint/quantization.h"
#include "runtime/checkpoint/safetensors.h"

// The folder that `ferry quantize` writes: a checkpoint whose quantised matrices are packed already, so that a start maps them
// and copies nothing.
//
//   ferry.json                      the mark: version of the layout, what is quantised, and checksums; written last
//   checksums.json                  checksums of the weights (checksums.h)
//   NAME.panels                     U8 [panels, bytes of a panel], the panels of one matrix (kernels/cpu/panel_layout.h)
//   __metadata__["NAME.panels"]     panels_note(), such as "w4a8:64 [1024, 2048] gated"
//   all else                        as in the checkpoint it was made of
//
// What the panels hold is checked when they are made, and later only with --check-weights: a code of e4m3 that is no number
// would be taken for 480 times its scale.
//
// Checksums are compared when bytes are read anyway: those of tensors that are copied, of panels that become a device's layout,
// and of an expert that a rank reads by itself while it serves. Panels and an embedding that stay mapped are not read at start:
// to map them is seven times as fast as a checksum. They are compared in folders of up to kSmallFolderBytes, with
// --check-weights, and by `ferry inspect --verify`. The mark has the checksums of all other files and ends with its own. These
// files are small, so they are compared whenever the folder is opened. Folders of an older Ferry have no checksums.
//
// NAME is the matrix's without ".weight"; rows that the model stacks are one matrix: "….mlp.shared_expert.gate_up_proj",
// "….mlp.experts.E.gate_up_proj" and "….mlp.experts.E.down_proj", one for every expert however they were stored. Panels stand
// first in a file and each is a multiple of 64 bytes, so all of them are aligned where the file is mapped.

namespace ferry {

/// Of the layout of panels and of the names.
inline constexpr int64_t kPackedVersion = 1;
inline constexpr const char* kPackedMark = "ferry.json";
inline constexpr const char* kConfigFile = "config.json";
inline constexpr const char* kGenerationConfigFile = "generation_config.json";
inline constexpr const char* kIndexFile = "model.safetensors.index.json";
/// These files may stand beside the weights of a checkpoint. `ferry quantize` copies those that are there.
inline constexpr std::array kCopiedFiles = {kConfigFile,
                                            kGenerationConfigFile,
                                            "tokenizer.json",
                                            "tokenizer_config.json",
                                            "vocab.json",
                                            "merges.txt",
                                            "added_tokens.json",
                                            "chat_template.jinja",
                                            "chat_template.json",
                                            "special_tokens_map.json",
                                            "processor_config.json",
                                            "preprocessor_config.json",
                                            "LICENSE",
                                            "video_preprocessor_config.json"};
/// Weights of so many bytes take about 3 ms to compare.
inline constexpr int64_t kSmallFolderBytes = int64_t{16} << 20;

/// The contents of a folder's mark.
struct PackedMark {
  Quantization quantization;
  std::map<std::string, std::string> files;  // checksum_text() of all files but the mark and the weights; empty: no checksums

  bool has_checksums() const { return !files.empty(); }
};

/// Returns nothing if `dir` has no mark. Throws Error{kInvalidArgument} for a mark that is malformed or damaged, has another
/// version, or is missing where checksums.json is there, and Error{kNotFound} for one that cannot be opened.
std::optional<PackedMark> read_packed_mark(const std::filesystem::path& dir);
/// Throws Error{kUnavailable} if the file cannot be written.
void write_packed_mark(const std::filesystem::path& dir, const PackedMark& mark);

/// Returns the contents of a file. Throws Error{kInvalidArgument} that names it if they are not those that the mark has a
/// checksum of, and Error{kNotFound} if it is not there.
std::string read_packed_file(const std::filesystem::path& dir, const PackedMark& mark, const std::string& name);
/// Returns the contents of a file in any checkpoint folder. Throws as read_packed_mark(), and as read_packed_file() does if the
/// mark has a checksum of the file.
std::string read_checked_file(const std::filesystem::path& dir, const std::string& name);
/// Compares all files but the weights with the mark's checksums. Throws for the first as read_packed_file() does.
void check_packed_files(const std::filesystem::path& dir, const PackedMark& mark);
/// Throws Error{kInvalidArgument}: a folder that has checksums has none of the file at `path`.
[[noreturn]] void refuse_unlisted(const std::filesystem::path& path);
/// Returns the checksums of the weights. Throws as read_packed_file() does.
FolderChecksums read_packed_checksums(const std::filesystem::path& dir, const PackedMark& mark);

/// How the matrices of a checkpoint folder are to be held.
struct WeightPlan {
  Quantization quantization;
  bool in_panels = false;  // the folder holds the quantised ones in panels
};

/// `asked` is what the command line says, if anything: none is asked by default, and a packed folder decides by itself. Throws
/// Error{kInvalidArgument} if a packed folder holds anything but what was asked for.
WeightPlan plan_weights(const std::filesystem::path& dir, const std::optional<Quantization>& asked);

/// A quantised matrix [n, k] in panels; int4 with its group size.
struct PanelShape {
  int64_t n = 0;
  int64_t k = 0;
  WeightType type;
  WeightUse use = WeightUse::kPlain;

  int64_t num_panels() const;
  int64_t panel_bytes() const;
  int64_t bytes() const { return num_panels() * panel_bytes(); }
};

std::string panels_name(const std::string& matrix);
std::string panels_note(const PanelShape& shape);

/// Throws Error{kInvalidArgument} that names tensor, value and what is allowed if `tensor` does not hold such panels.
void check_panels(const TensorInfo& tensor, const PanelShape& shape);
/// Throws Error{kInvalidArgument} that names panel and column of a scale that is not finite.
void check_panels_finite(const TensorInfo& tensor, const PanelShape& shape);

}  // namespace ferry

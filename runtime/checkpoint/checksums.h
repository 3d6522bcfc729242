#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/content_hash.h"
#include "runtime/base/thread_pool.h"
#include "runtime/checkpoint/safetensors.h"

// Checksums of the weights in a folder of `ferry quantize`, so that damaged bytes are found before they become logits.
//
//   {"format": "ferry checksums", "version": 1, "algorithm": "xxh3-64",
//    "weights": {"model-00001-of-00002.safetensors": {"bytes": 4096, "header": "0123456789abcdef", "pieces": "0123…cdef"}}}
//
// The header's checksum covers the file up to the first tensor. A tensor has one checksum for each piece of it, and "pieces"
// has those of all tensors, in the order of the tensors' names. A piece is what a rank reads by itself
// (checksum_piece_bytes()), so a rank checks its own experts without reading others. Names and sizes follow from the header,
// which keeps the list short.

namespace ferry {

/// XXH3 of 64 bits as 16 hexadecimal digits.
std::string checksum_text(uint64_t checksum);

/// Returns the bytes of all pieces of a tensor but the last: one expert of a stack of experts, otherwise whole rows of at most
/// 4 MiB together. At least 1.
int64_t checksum_piece_bytes(StoredType dtype, const std::vector<int64_t>& shape);

/// Returns how many pieces `bytes` make.
int64_t checksum_pieces(int64_t bytes, int64_t piece_bytes);

/// The checksums of one safetensors file.
struct FileChecksums {
  int64_t bytes = 0;             // of the file
  uint64_t header = 0;           // of the file's bytes in front of the first tensor
  std::vector<uint64_t> pieces;  // of all tensors, in the order of their names
};

/// The checksums of one tensor.
struct TensorChecksums {
  int64_t piece_bytes = 1;  // of all pieces but the last
  std::span<const uint64_t> pieces;
  std::span<std::atomic<bool>> was_right;  // by piece: whether it was compared before
};

/// The checksums of an open file. Does not move.
struct OpenChecksums {
  explicit OpenChecksums(std::vector<uint64_t> all) : pieces(std::move(all)), was_right(pieces.size()) {}

  const std::vector<uint64_t> pieces;
  std::vector<std::atomic<bool>> was_right;
  std::vector<TensorChecksums> tensors;  // views of both, as SafetensorsFile::tensors()
};

/// The checksums of a folder's safetensors files by file name.
using FolderChecksums = std::map<std::string, FileChecksums, std::less<>>;

inline constexpr const char* kChecksumsFile = "checksums.json";
inline constexpr const char* kChecksumsFormat = "ferry checksums";

/// Returns whether `name` names a file in the folder itself.
bool is_plain_file_name(std::string_view name);

/// The contents of checksums.json.
std::string write_checksums(const FolderChecksums& checksums);
/// The reverse. Throws Error{kInvalidArgument} that begins with `name` for anything else.
FolderChecksums parse_checksums(std::string_view text, const std::string& name);

/// Makes the checksums of a file while its bytes are written.
class ChecksumMaker {
 public:
  /// The file begins with `header`. Adds the tensors in the order in which their bytes come.
  void begin(std::span<const std::byte> header);
  void expect(const std::string& tensor, int64_t bytes, int64_t piece_bytes);
  /// The next bytes of the tensors' data.
  void add(std::span<const std::byte> data);
  /// All data must have been added.
  FileChecksums take();

 private:
  struct Section {
    std::string name;
    int64_t bytes_left;
    int64_t piece_bytes;
    std::vector<uint64_t> pieces;
  };
  void end_piece(Section& section);

  int64_t header_bytes_ = 0, data_bytes_ = 0;
  uint64_t header_ = 0;
  std::vector<Section> sections_;
  std::size_t at_ = 0;        // section of the next byte
  int64_t piece_filled_ = 0;  // bytes of its current piece that were added
  std::optional<ContentHash> piece_;
};

/// Says which pieces check_bytes() reads again if they were right before.
enum class Recheck : uint8_t {
  kWhole,  // those that the range holds whole
  kNone,
};

/// Compares the pieces that hold bytes [offset, offset + bytes) of a tensor with their checksums. A tensor without checksums
/// passes. The threads of `pool` share the work if there is one.
///
/// Throws Error{kInvalidArgument} that names file, tensor and piece if one differs.
void check_bytes(const TensorInfo& tensor, int64_t offset, int64_t bytes, ThreadPool* pool = nullptr,
                 Recheck recheck = Recheck::kWhole);

}  // namespace ferry
